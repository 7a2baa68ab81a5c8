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
    installed: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    told = json.loads(run(REPAIR, site=installed))
    assert told["better"]
    assert told["history"] == 31
    assert told["settings"]["searcher"] == {
        "name": "polling",
        "package": "arachne-tally 1.0",
        "rounds": 30,
        "patience": 20,
        "reach": 0.5,
    }
    assert told["settings"]["localiser"]["package"] == "arachne-tally 1.0"
    assert told["settings"]["localiser"]["share"] == 0.5


def test_the_command_has_flags_for_a_plugins_options(installed: Path, folder: Path) -> None:
    given = ("--search", "polling", "--polling-rounds", "7", "--patience", "3", "--loudest-share", "0.3")
    done = arachne(*WHAT, *given, "--json", site=installed, cwd=folder)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    settings = result["provenance"]["settings"]
    assert result["generations"] == 7
    assert (settings["searcher"]["rounds"], settings["searcher"]["patience"]) == (7, 3)
    assert settings["localiser"]["share"] == 0.3
    helped = arachne("repair", "--help", site=installed, cwd=folder).stdout
    assert "--polling-rounds INTEGER" in helped
    assert "How many changes to ask for." in helped


def test_options_of_a_plugin_may_stand_in_a_file(installed: Path, folder: Path) -> None:
    (folder / "arachne.toml").write_text('[repair]\nsearch = "polling"\npolling-rounds = 4\n')
    done = arachne(*WHAT, "--json", site=installed, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["generations"] == 4


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            ("--search", "polling", "--population", "9"),
            "--population is an option of the searcher 'de' and 'front', not of 'polling'; --search de chooses it",
        ),
        (
            ("--polling-rounds", "9"),
            "--polling-rounds is an option of the searcher 'polling', not of 'auto'; --search polling chooses it",
        ),
        (
            ("--min-weights", "9"),
            "--min-weights is an option of the localiser 'bl' and 'gl', not of 'loudest'; --localiser bl chooses it",
        ),
        (("--search", "polling", "--polling-rounds", "0"), "rounds must be 1 or more, got 0"),
        (("--search", "poling"), "no searcher named 'poling'; did you mean 'polling'?"),
    ],
)
def test_an_option_of_another_plugin_is_refused_in_one_sentence(
    installed: Path, folder: Path, given: tuple[str, ...], sentence: str
) -> None:
    done = arachne(*WHAT, *given, site=installed, cwd=folder)
    assert done.returncode == 2
    assert done.stderr == f"error: {sentence}\n"


def test_a_plugin_that_cannot_be_imported_harms_nobody_who_does_not_use_it(installed: Path, folder: Path) -> None:
    chosen = arachne(*WHAT, "--search", "broken", site=installed, cwd=folder)
    assert chosen.returncode == 4
    assert "searcher 'broken' of arachne-tally 1.0 cannot be imported (RuntimeError: out of order)" in chosen.stderr
    other = arachne(*WHAT, "--search", "polling", "-q", site=installed, cwd=folder)
    assert other.returncode == 0, other.stderr
