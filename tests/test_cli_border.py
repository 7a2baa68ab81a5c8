"""Every option of every command, set by a file that is merely found or by the environment: told, or refused."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from arachne.cli import COMMANDS
from arachne.cli.border import HarmlessOption, PluginName, is_refused
from arachne.cli.config import ConfiguredCommand
from arachne.cli.plugin_options import NameValues, plugin_options
from arachne.cli.provenance import Origin, Source, option_text, setting_names
from arachne.cli.settings_file import lines_of_keys
from arachne.errors import InputError
from arachne.plugins.table import LOCALISERS, OBJECTIVES, SEARCHERS, TASKS
from tests.commands import Ran, arachne

HARMLESS = {
    *("memory", "seed", "alpha", "time-limit", "rounds", "max-break", "max-drop", "confidence"),
    *("json", "quiet", "verbose", "faithful", "causes", "layers", "no-cache"),
    *("quantise", "option"),
    *("backend", "localiser", "search", "objective", "task", "tolerance"),
}
"""The options of commands that found settings may set; whoever adds one here says that no value of it does harm."""

OF_PLUGINS = {
    option.name: option
    for table in (LOCALISERS, SEARCHERS, OBJECTIVES, TASKS)
    for name in table.ours
    for option in plugin_options(table, name).values()
}


def options() -> Iterator[tuple[str, str]]:
    """Every command with each of its options."""
    for command in COMMANDS:
        for parameter in importlib.import_module(f"arachne.cli.{command}").command.params:
            for name in setting_names(parameter):
                yield command, name


def parameter_of(command: str, name: str) -> tuple[click.Command, click.Parameter]:
    owner: click.Command = importlib.import_module(f"arachne.cli.{command}").command
    return owner, next(one for one in owner.params if name in setting_names(one))


def value_for(parameter: click.Parameter) -> tuple[str, str]:
    """A value that the option takes, as TOML and as the environment has it."""
    kind: Any = parameter.type
    if isinstance(parameter, click.Option) and parameter.is_flag:
        return "true", "1"
    if isinstance(parameter, NameValues):
        return '["count=2"]', "count=2"
    if isinstance(kind, PluginName):
        name = next(iter(kind.table.ours))
        return f'"{name}"', name
    if isinstance(kind, click.Choice):
        return f'"{kind.choices[0]}"', str(kind.choices[0])
    word = {"integer": "2", "integer range": "20", "float": "0.5", "share": "0.5", "size": '"3MB"', "duration": "60"}
    found = word.get(kind.name, '"tcp://127.0.0.1:1"')
    return found, found.strip('"')


def show_setting(command: str, name: str, folder: Path) -> dict[str, Any]:
    ran = arachne("settings", "--json", command, cwd=folder)
    assert ran.code == 0, ran.err
    rows: dict[str, dict[str, Any]] = ran.json
    _, parameter = parameter_of(command, name)
    key = "option.count" if isinstance(parameter, NameValues) else setting_names(parameter)[0]
    return rows.get(key, {"origin": "default", "may_be_found": False})


def run_until_missing(command: str, folder: Path) -> Ran:
    """A run that ends soon: its model is missing."""
    words = {"choose": ("missing", "missing.onnx")}.get(command, ("missing.onnx",))
    needed = ("--data", "missing.npz", "--target", "1:2") if command in ("repair", "compare", "localise") else ()
    return arachne(command, *words, *needed, cwd=folder)


@pytest.mark.parametrize(("command", "name"), list(options()))
def test_found_settings_are_taken_and_told_or_refused(
    command: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, parameter = parameter_of(command, name)
    toml, word = value_for(parameter)
    variable = f"ARACHNE_{command}_{setting_names(parameter)[0]}".upper().replace("-", "_")
    for origin, place, code in (("found file", "'arachne.toml', line 3", 3), ("environment", variable, 2)):
        with monkeypatch.context() as patch:
            if origin == "environment":
                (tmp_path / "arachne.toml").unlink()
                patch.setenv(variable, word)
            else:
                (tmp_path / "arachne.toml").write_text(f"# options\n[{command}]\n{name} = {toml}\n")
            row = show_setting(command, name, tmp_path)
            if not isinstance(owner, ConfiguredCommand):
                assert (row["origin"], row["may_be_found"]) == ("default", False)
                continue
            ran = run_until_missing(command, tmp_path)
            if name in HARMLESS:
                assert (row["origin"], row["source"], row["may_be_found"]) == (origin, place, True)
                first = setting_names(parameter)[0] + (".count" if isinstance(parameter, NameValues) else "")
                assert ran.err.startswith(f"found settings: {first} = "), ran.err
                assert f"({place})" in ran.err
            else:
                assert (row["origin"], row["may_be_found"]) == ("default", False)
                assert (ran.code, ran.err.count("\n")) == (code, 1), ran.err
                assert ran.err.startswith(f"error: {place} sets {option_text(parameter)}, and "), ran.err
                assert f"; type {option_text(parameter)}, or " in ran.err
                assert "--config " in ran.err


@pytest.mark.parametrize("name", OF_PLUGINS)
def test_found_words_for_plugins_are_taken_by_kind(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, choices = OF_PLUGINS[name].kind, OF_PLUGINS[name].choices
    values = {"int": "20", "float": "0.5", "bool": "true", "tuple[float, float]": "[0.25, 0.5]"}
    value = f'"{choices[0]}"' if choices else values.get(kind, '"tcp://127.0.0.1:1"')
    harmless = choices is not None or kind in values
    (tmp_path / "arachne.toml").write_text(f"[repair.option]\n{name} = {value}\n")
    row = arachne("settings", "--json", "repair", cwd=tmp_path).json[f"option.{name}"]
    assert (row["may_be_found"], row["refused"]) == (harmless, [] if harmless else ["'arachne.toml', line 2"])
    assert row["source"] == ("'arachne.toml', line 2" if harmless else "default")
    ran = run_until_missing("repair", tmp_path)
    first = f"found settings: option.{name} = " if harmless else f"error: 'arachne.toml', line 2 sets -O {name}, and "
    assert ran.err.startswith(first), ran.err
    named = arachne("settings", "--json", "repair", "--config", "arachne.toml", cwd=tmp_path).json[f"option.{name}"]
    assert (named["origin"], named["refused"]) == ("named file", [])
    (tmp_path / "arachne.toml").unlink()
    monkeypatch.setenv("ARACHNE_REPAIR_OPTION", f"search.steps=3 {name}={value.strip(chr(34))}".replace(", ", ","))
    ran = run_until_missing("repair", tmp_path)
    assert f"ARACHNE_REPAIR_OPTION{')' if harmless else f' sets -O {name}, and '}" in ran.err


@pytest.mark.parametrize(
    ("text", "name", "line"),
    [
        ('[repair.option]\nsteps = 3\nmembers = ["bias"]\n', "members", 3),
        ('[repair]\noption = ["steps=3", "members=bias"]\n', "members", 2),
        ('[repair]\nseed = 1\noption.search.members = "bias"\n', "search.members", 3),
        ('option = ["auto.members=bias"]\n', "auto.members", 1),
        ('repair = {option = {members = "bias"}}\n', "members", 1),
        ('[repair.option]\n"m\\u0065mbers" = "bias"\n', "members", 2),
        ("[repair.option]\nstrange.steps = 3\n", "strange.steps", 2),
        ("[repair.option]\ninclude = 'fc1'\n", "include", 2),
        ("[repair.option]\npopulaton = 9\n", "populaton", 2),
    ],
)
def test_words_are_refused_with_their_line_and_taken_from_a_named_file(
    text: str, name: str, line: int, tmp_path: Path
) -> None:
    (tmp_path / "arachne.toml").write_text(text)
    ran = run_until_missing("repair", tmp_path)
    assert (ran.code, ran.err.count("\n")) == (3, 1), ran.err
    assert ran.err.startswith(f"error: 'arachne.toml', line {line} sets -O {name}, and a file "), ran.err
    assert ran.err.endswith("did you mean 'population'?\n" if name == "populaton" else "(--config arachne.toml)\n")
    row = arachne("settings", "--json", "repair", "--config", "arachne.toml", cwd=tmp_path).json[f"option.{name}"]
    assert (row["source"], row["refused"]) == (f"'arachne.toml', line {line}", [])


def test_the_later_source_wins_however_a_name_is_spelt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "arachne.toml").write_text("[localise.option]\nmin_weights = 1\n")
    monkeypatch.setenv("ARACHNE_LOCALISE_OPTION", "min-weights=2")
    row = arachne("settings", "--json", "localise", cwd=tmp_path).json["option.min_weights"]
    assert (row["value"], row["source"]) == (2, "ARACHNE_LOCALISE_OPTION")
    row = arachne("settings", "--json", "localise", "-O", "min_weights=3", cwd=tmp_path).json["option.min_weights"]
    assert (row["value"], row["source"]) == (3, "typed")


@pytest.mark.parametrize("name", ["margin", "MARGIN", "keep"])
def test_found_settings_choose_ours_however_they_are_spelt_and_by_an_older_name(name: str, tmp_path: Path) -> None:
    (tmp_path / "arachne.toml").write_text(f"[repair]\nsearch = '{name}'\noption = ['{name.lower()}.steps=32']\n")
    rows = arachne("settings", "--json", "repair", cwd=tmp_path).json
    assert (rows["search"]["value"], rows["search"]["refused"]) == (name, [])
    row = rows[f"option.{name.lower()}.steps"]
    assert (row["value"], row["refused"]) == (32, [])


def test_a_plugin_of_others_that_differs_from_ours_in_capitals_alone_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    about = tmp_path / "strange-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: strange\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[arachne.searchers]\nDE = strange:Searcher\n")
    monkeypatch.syspath_prepend(tmp_path)
    parameter, found = parameter_of("repair", "search")[1], Source(Origin.FOUND, "arachne.toml", 1)
    assert [is_refused(parameter, name, found) for name in ("de", "DE", "De")] == [False, True, False]


def test_an_option_that_nobody_declared_is_refused_and_a_text_cannot_be_declared(tmp_path: Path) -> None:
    @click.command(cls=ConfiguredCommand)
    @click.option("--port", type=int)
    def command(port: int | None) -> None:
        """Listen."""

    (tmp_path / "arachne.toml").write_text("port = 80\n")
    with contextlib.chdir(tmp_path), pytest.raises(InputError, match=r"line 1 sets --port, and a file"):
        command.make_context("command", [])
    for kind in (str, click.Path(), click.File()):
        with pytest.raises(TypeError, match="cannot be declared harmless"):
            HarmlessOption(["--place"], type=kind)


def test_a_quiet_that_is_found_hides_nothing_and_one_that_is_typed_does(tmp_path: Path) -> None:
    (tmp_path / "arachne.toml").write_text("quiet = true\nmemory = '3MB'\n")
    assert "memory = 3000000 ('arachne.toml', line 2)" in arachne("scan", "missing.onnx", cwd=tmp_path).err
    assert "memory" not in arachne("scan", "missing.onnx", "-q", cwd=tmp_path).err


def test_settings_are_shown_although_some_would_be_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "arachne.toml").write_text('cluster = "tcp://127.0.0.1:1"\n')
    monkeypatch.setenv("ARACHNE_SCAN_CLUSTER", "tcp://127.0.0.1:2")
    ran = arachne("settings", "scan", cwd=tmp_path)
    refused = "refused from 'arachne.toml', line 1 and ARACHNE_SCAN_CLUSTER"
    assert f'# cluster = ""  # default; typed or named only; {refused}' in ran.out.splitlines()
    every = arachne("settings", cwd=tmp_path).out
    headers = [line for line in every.splitlines() if line.startswith("[")]
    assert headers == ["[scan]", "[localise]", "[repair]", "[compare]", "[evaluate]", "[choose]"]
    assert arachne("settings", "scna", cwd=tmp_path).code == 2


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("seed = 1", 1),
        ("# seed = 3\n\nother = 2\nseed = 1", 4),
        ('"s\\u0065ed" = 1', 1),
        ("other = [\n1,\n]\n  seed=1", 4),
    ],
)
def test_the_line_of_a_key_is_found(text: str, line: int) -> None:
    assert lines_of_keys(text)[("seed",)] == line
    assert lines_of_keys(f"[repair] # all\n{text}")[("repair", "seed")] == line + 1
    assert lines_of_keys("[other]\nseed = 2\n[repair]\nrepair.seed = 1\n")[("repair", "repair", "seed")] == 4
