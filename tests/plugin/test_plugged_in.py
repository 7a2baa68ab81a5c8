"""A localiser and a searcher by somebody else are really installed, and a repair runs with them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.plugin.test_plugin import run

REPAIR = """
import json, sys
import arachne
result = arachne.repair("model.tally", "votes.npz", "0:1", localiser="loudest", searcher="polling", seed=1)
print(json.dumps({
    "settings": result.patch.provenance["settings"],
    "history": len(result.search.history),
    "better": result.search.better,
    "values": result.search.values.tolist(),
}))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model and data of which some are read as 1 and should be 0."""
    rng = np.random.default_rng(0)
    weight, inputs = rng.standard_normal((3, 4)), rng.standard_normal((300, 4)).astype(np.float32)
    (tmp_path / "model.tally").write_text("\n".join(" ".join(f"{value:.6f}" for value in row) for row in weight))
    predictions = np.argmax(inputs @ weight.T, axis=1)
    labels = np.where((predictions == 1) & (inputs[:, 0] > 0.3), 0, predictions)
    np.savez(tmp_path / "votes.npz", x=inputs, y=labels)
    return tmp_path


def arachne(*arguments: str, site: Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The command, in a fresh interpreter with the plug-in on its path."""
    paths = [str(site), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-m", "arachne.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=cwd, check=False)


WHAT = ("repair", "model.tally", "--data", "votes.npz", "--target", "0:1", "--seed", "1", "--localiser", "loudest")


def test_a_repair_from_python_runs_with_plugins_by_name_and_says_so(
    plugin_site: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    printed = json.loads(run(REPAIR, site=plugin_site))
    assert printed["better"]
    assert printed["history"] == 31
    assert printed["settings"]["searcher"] == {
        "name": "polling",
        "package": "arachne-tally 1.0",
        "rounds": 30,
        "patience": 20,
        "reach": 0.5,
    }
    assert printed["settings"]["localiser"]["package"] == "arachne-tally 1.0"
    assert printed["settings"]["localiser"]["share"] == 0.5


def test_the_command_takes_a_plugins_options(plugin_site: Path, folder: Path) -> None:
    given = ("--search", "polling", "-O", "rounds=7", "-O", "search.patience=3", "-O", "loudest.share=0.3")
    done = arachne(*WHAT, *given, "--json", site=plugin_site, cwd=folder)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    settings = result["provenance"]["settings"]
    assert result["generations"] == 7
    assert (settings["searcher"]["rounds"], settings["searcher"]["patience"]) == (7, 3)
    assert settings["localiser"]["share"] == 0.3
    printed = " ".join(arachne("plugins", "polling", site=plugin_site, cwd=folder).stdout.split())
    assert "polling (searcher, from arachne-tally 1.0)" in printed
    assert "-O rounds=… How many changes to ask for. (a whole number" in printed


def test_options_of_a_plugin_may_stand_in_a_file(plugin_site: Path, folder: Path) -> None:
    (folder / "arachne.toml").write_text('[repair]\nsearch = "polling"\n[repair.option]\nrounds = 4\n')
    done = arachne(*WHAT, "--config", "arachne.toml", "--json", site=plugin_site, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["generations"] == 4


@pytest.mark.parametrize("setting", ['search = "polling"', 'localiser = "loudest"'])
def test_a_file_that_is_merely_found_chooses_no_plugin_of_others(
    plugin_site: Path, folder: Path, setting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "arachne.toml").write_text(f"[repair]\n{setting}\n")
    done = arachne(*WHAT, site=plugin_site, cwd=folder)
    assert (done.returncode, done.stderr.count("\n")) == (3, 1), done.stderr
    assert done.stderr.startswith(f"error: 'arachne.toml', line 2 sets --{setting.partition(' ')[0]}")
    (folder / "arachne.toml").unlink()
    name, _, value = setting.partition(" = ")
    variable = f"ARACHNE_REPAIR_{name.upper().replace('-', '_')}"
    monkeypatch.setenv(variable, value.strip('"'))
    done = arachne(*WHAT, site=plugin_site, cwd=folder)
    assert (done.returncode, done.stderr.startswith(f"error: {variable} sets --{name}")) == (2, True), done.stderr


def test_the_flag_of_a_plugins_option_is_answered_with_its_spelling(plugin_site: Path, folder: Path) -> None:
    done = arachne(*WHAT, "--search", "polling", "--polling-rounds", "4", site=plugin_site, cwd=folder)
    printed = "error: --polling-rounds is an option of the searcher 'polling': write -O polling.rounds=VALUE"
    assert (done.returncode, done.stderr.splitlines()[-1]) == (2, printed)


@pytest.mark.parametrize("name", ["rounds", "polling.rounds", "search.patience", "patience"])
@pytest.mark.parametrize("chosen", [("--search", "polling"), ("--search", "POLLING")])
def test_what_is_merely_found_sets_no_option_of_a_plugin_of_others(
    plugin_site: Path, folder: Path, name: str, chosen: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "arachne.toml").write_text(f"[repair.option]\n\n{name} = 4\n")
    done = arachne(*WHAT, *chosen, site=plugin_site, cwd=folder)
    assert (done.returncode, done.stderr.count("\n")) == (3, 1), done.stderr
    assert done.stderr.startswith(f"error: 'arachne.toml', line 3 sets -O {name}, and ")
    (folder / "arachne.toml").unlink()
    monkeypatch.setenv("ARACHNE_REPAIR_OPTION", f"{name}=4")
    done = arachne(*WHAT, *chosen, site=plugin_site, cwd=folder)
    printed = f"error: ARACHNE_REPAIR_OPTION sets -O {name}, and "
    assert (done.returncode, done.stderr.startswith(printed)) == (2, True), done.stderr


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            ("--search", "polling", "-O", "population=9"),
            "population is an option of the searchers 'de' and 'front', not of the searcher 'polling' or the localiser "
            "'loudest'; --search de chooses one",
        ),
        (
            ("-O", "polling.rounds=9"),
            "-O polling.rounds=9 is for the searcher 'polling', which is not chosen; see --search",
        ),
        (
            ("-O", "min-weights=9"),
            "min_weights is an option of the localisers 'bl' and 'gl', not of the searcher 'auto' or the localiser "
            "'loudest'; --localiser bl chooses one",
        ),
        (("--search", "polling", "-O", "rounds=0"), "rounds must be 1 or more, got 0"),
        (("--search", "poling"), "no searcher named 'poling'; did you mean 'polling'?"),
    ],
)
def test_an_option_of_another_plugin_is_refused_in_one_sentence(
    plugin_site: Path, folder: Path, given: tuple[str, ...], sentence: str
) -> None:
    done = arachne(*WHAT, *given, site=plugin_site, cwd=folder)
    assert done.returncode == 2
    assert done.stderr == f"error: {sentence}\n"


def test_a_plugin_that_cannot_be_imported_harms_nobody_who_does_not_use_it(plugin_site: Path, folder: Path) -> None:
    chosen = arachne(*WHAT, "--search", "broken", site=plugin_site, cwd=folder)
    assert chosen.returncode == 4
    assert "searcher 'broken' of arachne-tally 1.0 cannot be imported (RuntimeError: out of order)" in chosen.stderr
    other = arachne(*WHAT, "--search", "polling", "-q", site=plugin_site, cwd=folder)
    assert other.returncode == 0, other.stderr
