"""Pages, gates, configuration and traffic from the command line, on the demo's model."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from importlib import resources
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import numpy as np
import pytest

from arachne.report.objects import result_schema
from tests.commands import arachne

pytestmark = pytest.mark.backend("onnx")
QUICK = ("--search", "de", "-O", "population=16", "-O", "generations=6")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli")
    for name in ("digits.onnx", "digits.npz"):
        (folder / name).write_bytes(resources.files("arachne.demo").joinpath(name).read_bytes())
    done = arachne("repair", "digits.onnx", "--data", "digits.npz", "--target", "*:7", "-o", "fix", *QUICK, cwd=folder)
    assert done.code == 0, done.err
    return folder


@pytest.fixture
def here(folder: Path, tmp_path: Path) -> Path:
    """A folder of its own with the model and the data, and nothing else."""
    for name in ("digits.onnx", "digits.npz"):
        (tmp_path / name).symlink_to(folder / name)
    return tmp_path


def test_a_repair_leaves_a_page_that_can_be_made_again(folder: Path) -> None:
    made = (folder / "fix" / "report.html").read_text(encoding="utf-8")
    assert "arachne repair digits.onnx --data digits.npz --target &#39;*:7&#39;" in made
    done = arachne("report", "fix", "-o", "again.html", "--json", cwd=folder)
    assert done.code == 0
    assert done.json == {"page": "again.html", "bytes": len(made.encode())}
    assert (folder / "again.html").read_text(encoding="utf-8") == made


def test_a_folder_that_holds_no_repair_is_refused(tmp_path: Path) -> None:
    done = arachne("report", ".", cwd=tmp_path)
    assert done.code == 3
    assert done.err == "error: '.' has no report.json; expected a folder that a repair was saved to\n"


def test_the_result_file_fits_its_schema(folder: Path) -> None:
    result = json.loads((folder / "fix" / "result.json").read_text(encoding="utf-8"))
    jsonschema.validate(result, result_schema(), jsonschema.Draft202012Validator)


def test_gates_that_hold_back_nothing_let_the_pipeline_go_on(folder: Path, tmp_path: Path) -> None:
    gates = ["--fail-if", "break_rate > 90%", "--fail-if", "repair_rate < 0.1%"]
    done = arachne(
        *("evaluate", "digits.onnx", "--data", "digits.npz", "--patch", "fix/patch.json", *gates), "--json", cwd=folder
    )
    assert done.code == 0
    assert [gate["failed"] for gate in done.json["gates"]] == [False, False]
    assert "gate passed: not break_rate > 90% (it is " in done.err
    jsonschema.validate(done.json, result_schema(), jsonschema.Draft202012Validator)


def test_a_gate_that_fails_exits_with_1_and_is_in_the_junit_file(folder: Path, tmp_path: Path) -> None:
    gates = [
        "--fail-if",
        "accuracy < 100.1%",
        "--fail-if",
        "class_drop[3] > 99%",
        "--junit",
        str(tmp_path / "gates.xml"),
    ]
    done = arachne("evaluate", "digits.onnx", "--data", "digits.npz", "--patch", "fix/patch.json", *gates, cwd=folder)
    assert done.code == 1
    assert "error: 1 of 2 gates failed: accuracy < 100.1% (it is " in done.err
    suite = ElementTree.parse(tmp_path / "gates.xml").getroot()[0]
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")


def test_a_gate_with_a_typo_stops_the_run_before_the_search(here: Path) -> None:
    done = arachne(
        *("repair", "digits.onnx", "--data", "digits.npz", "--target", "*:7", "-o", "fix"),
        *("--fail-if", "braek_rate > 1%"),
        cwd=here,
    )
    assert done.code == 2
    assert "did you mean 'break_rate'?" in done.err
    assert not (here / "fix").exists()


def test_junit_without_gates_is_refused(here: Path) -> None:
    done = arachne("evaluate", "digits.onnx", "--data", "digits.npz", "--junit", "x.xml", cwd=here)
    assert (done.code, done.err) == (2, "error: --junit writes gates; give at least one with --fail-if\n")


def test_flips_are_counted_on_inputs_without_labels(folder: Path, tmp_path: Path) -> None:
    with np.load(folder / "digits.npz") as data:
        np.save(tmp_path / "traffic.npy", data["x"][:300])
    done = arachne(
        *("evaluate", "digits.onnx", "--data", "digits.npz", "--patch", "fix/patch.json", "--json"),
        *("--unlabelled", tmp_path / "traffic.npy"),
        cwd=folder,
    )
    assert done.code == 0, done.err
    flips = done.json["unlabelled"]
    assert flips["inputs"] == 300
    assert 0 < flips["flipped"] == len(flips["rows"]) == sum(kind["count"] for kind in flips["kinds"])
    assert f"{flips['flipped']} of 300 predictions flip" in done.err
    assert f"such as row {flips['rows'][0]['row']}:" in done.err


def test_flips_are_told_without_any_labelled_data(folder: Path, tmp_path: Path) -> None:
    with np.load(folder / "digits.npz") as data:
        np.save(tmp_path / "traffic.npy", data["x"][:300])
    command = ("evaluate", "digits.onnx", "--patch", "fix/patch.json", "--unlabelled", tmp_path / "traffic.npy")
    told = arachne(*command, "--json", cwd=folder)
    assert told.code == 0, told.err
    assert (told.json["schema"], told.json["inputs"]) == ("arachne.flips/1", 300)
    assert 0 < told.json["flipped"] == len(told.json["rows"])
    said = arachne(*command, "--classes", "zero,one,two,three,four,five,six,seven,eight,nine", cwd=folder)
    assert (said.code, said.err) == (0, "")
    assert said.out.startswith(f"'{tmp_path / 'traffic.npy'}': {told.json['flipped']} of 300 predictions flip, ")
    assert "\n  seven → " in said.out


@pytest.mark.parametrize(
    "option",
    [
        ("--target", "7:1"),
        ("--quantise", "int8"),
        ("--against", "digits.onnx"),
        ("--fail-if", "broken > 1"),
        ("--report", "a.html"),
    ],
)
def test_what_needs_labels_is_refused_without_them(folder: Path, option: tuple[str, str]) -> None:
    traffic = ("--patch", "fix/patch.json", "--unlabelled", "digits.npz")
    done = arachne("evaluate", "digits.onnx", *traffic, *option, cwd=folder)
    wanted = f"error: {option[0]} needs labels, which --unlabelled does not have; give labelled inputs with --data\n"
    assert (done.code, done.err) == (2, wanted)


def test_an_evaluation_needs_inputs_of_one_kind_or_the_other(here: Path) -> None:
    done = arachne("evaluate", "digits.onnx", cwd=here)
    assert done.code == 2
    assert "give labelled inputs with --data, or inputs without labels with --patch and --unlabelled" in done.err


def test_traffic_without_a_patch_is_refused(here: Path) -> None:
    done = arachne("evaluate", "digits.onnx", "--data", "digits.npz", "--unlabelled", "digits.npz", cwd=here)
    assert done.code == 2
    assert "give one with --patch" in done.err


def test_an_evaluation_can_have_a_page(folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = arachne(
        *("evaluate", "digits.onnx", "--data", "digits.npz", "--patch", "fix/patch.json", "--report", page), cwd=folder
    )
    assert done.code == 0
    assert "arachne evaluate digits.onnx" in page.read_text(encoding="utf-8")


def test_command_line_beats_environment_beats_file(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "arachne.toml").write_text(
        'memory = "1GB"\n[repair]\nalpha = 4\nseed = 1\nsearch = "de"\n'
        "[repair.option]\npopulation = 10\npatience = 8\nlocaliser.count = 6\n",
        encoding="utf-8",
    )
    monkeypatch.setenv("ARACHNE_REPAIR_SEED", "2")
    monkeypatch.setenv("ARACHNE_REPAIR_OPTION", "population=11 patience=9")
    done = arachne("settings", "--json", "repair", "digits.onnx", "-O", "population=12", cwd=here)
    assert done.code == 0
    shown = {name: (entry["value"], entry["source"]) for name, entry in done.json.items()}
    assert shown["option.population"] == (12, "typed")
    assert shown["option.patience"] == (9, "ARACHNE_REPAIR_OPTION")
    assert shown["option.localiser.count"] == (6, "'arachne.toml', line 9")
    assert shown["seed"] == (2, "ARACHNE_REPAIR_SEED")
    assert shown["alpha"] == (4.0, "'arachne.toml', line 3")
    assert shown["memory"] == (10**9, "'arachne.toml', line 1")
    assert shown["rounds"] == (1, "default")
    given = ("digits.onnx", "--data", "digits.npz", "--target", "*:7", "-O", "generations=2", "--json")
    ran = arachne("repair", *given, cwd=here)
    assert (ran.code, ran.json["seed"], ran.json["target"]) == (0, 2, "*:7")
    told = "memory = 1000000000 ('arachne.toml', line 1), seed = 2 (ARACHNE_REPAIR_SEED), alpha = 4.0 ('arachne.toml', "
    assert ran.err.startswith(f"found settings: {told}line 3), ")
    assert "option.population = 11 (ARACHNE_REPAIR_OPTION), option.patience = 9 (ARACHNE_REPAIR_OPTION)" in ran.err
    settings = ran.json["provenance"]["settings"]
    assert [settings["searcher"][name] for name in ("population", "patience", "generations")] == [11, 9, 2]
    assert settings["localiser"]["count"] == 6


def test_a_printed_configuration_can_be_used_again(here: Path) -> None:
    words = ("-O", "members=bias,last", "-O", "localiser.count=6", "-O", "every-class=false")
    given = ("digits.onnx", "--data", "digits.npz", "--target", "*:7", "--alpha", "3", "--seed", "4", *words)
    shown = arachne("settings", "repair", *given, cwd=here)
    (here / "mine.toml").write_text(shown.out, encoding="utf-8")
    again = arachne("settings", "repair", "--config", "mine.toml", cwd=here)
    values = [line.partition("  # ")[0] for line in shown.out.splitlines()]
    assert [line.partition("  # ")[0] for line in again.out.splitlines()] == values
    assert 'target = ["*:7"]' in values
    assert [line for line in values if line.startswith("option")] == [
        'option.members = "bias,last"',
        "option.localiser.count = 6",
        "option.every_class = false",
    ]


@pytest.mark.parametrize(
    ("content", "code", "message"),
    [
        ("[repair]\nalhpa = 3\n", 3, "'bad.toml', line 2 has the option 'alhpa' for repair; did you mean 'alpha'?"),
        (
            "max-brake = 3\n",
            3,
            "'bad.toml', line 1 has the option 'max-brake', which no command has; did you mean 'max-break'?",
        ),
        ("[repir]\nalpha = 3\n", 3, "'bad.toml' has the table [repir], which is no command; did you mean 'repair'?"),
        ("[repair]\npopulation = 9\n", 3, "which is a plug-in's: give it in the table [repair.option]"),
        ("[repair.option]\nsteps = 2020-01-01\n", 3, "a date or time for 'option.steps'"),
        ("[repair\n", 3, "is not TOML"),
        ("[repair]\nalpha = 'much'\n", 3, "'bad.toml', line 2 has --alpha: 'much' is not a valid float"),
        ("[repair]\nseed = -1\n", 3, "'bad.toml', line 2 has --seed: -1 is not in the range x>=0"),
        ("[repair.option]\nevery-class = 'none'\n", 3, "'bad.toml', line 2 has -O every-class=none: "),
        ("[repair.option]\nnobodys = 1\n", 3, "'bad.toml', line 2 has -O nobodys=1: "),
        ("[repair]\nmax-break = '700%'\n", 3, "'bad.toml', line 2 has --max-break: expected a share"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused(here: Path, content: str, code: int, message: str) -> None:
    (here / "bad.toml").write_text(content, encoding="utf-8")
    arguments = ("digits.onnx", "--data", "digits.npz", "--target", "*:7", "--config", "bad.toml")
    done = arachne("repair", *arguments, cwd=here)
    assert done.code == code
    assert message in done.err


def test_quiet_says_nothing_and_verbose_every_generation(here: Path) -> None:
    arguments = shlex.split("repair digits.onnx --data digits.npz --target '*:7' --search de -O population=8")
    quiet = arachne(*arguments, "-O", "generations=2", "-q", "--log-file", "log.txt", cwd=here)
    assert quiet.err == ""
    assert quiet.out.splitlines()[0].startswith(("REMOVED (", "REDUCED BY ", "NOT SHOWN: "))
    log = (here / "log.txt").read_text(encoding="utf-8")
    assert " generation 2: fitness " in log
    verbose = arachne(*arguments, "-O", "generations=2", "-v", cwd=here)
    assert [line.split(":")[0] for line in verbose.err.splitlines() if line.startswith("generation")] == [
        "generation 0",
        "generation 1",
        "generation 2",
    ]


def test_shells_complete_commands() -> None:
    environment = {**os.environ, "_ARACHNE_COMPLETE": "bash_complete", "COMP_WORDS": "arachne rep", "COMP_CWORD": "1"}
    command = [sys.executable, "-c", "from arachne.cli import main; main()"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["plain,repair", "plain,report"]
