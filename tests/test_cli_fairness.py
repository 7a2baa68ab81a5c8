"""`arachne repair --objective gap`: the gap before and after, who pays, another point by groups, and clear refusals."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tests.commands import arachne

DEMO = Path(__file__).parent.parent / "arachne" / "demo"
pytestmark = pytest.mark.backend("onnx")
REPAIR = ("repair", str(DEMO / "digits.onnx"), "--data", "scans.npz", "--target", "group:old")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's digits with a column: those with the stuck pixel come from an old scanner, as do some others."""
    folder = tmp_path_factory.mktemp("fairness")
    with np.load(DEMO / "digits.npz") as stored:
        arrays = dict(stored)
    stuck = arrays["x"].reshape(len(arrays["y"]), -1)[:, 0] > 0.9
    old = stuck | (np.arange(len(stuck)) % 10 == 0)
    np.savez(folder / "scans.npz", **arrays, scanner=np.where(old, "old", "new"))
    return folder


@pytest.fixture(scope="module")
def fixed(folder: Path) -> Path:
    ran = arachne(*REPAIR, "--objective", "gap", "-v", "-o", "fix", cwd=folder)
    assert ran.code == 0, ran.err
    text = " ".join(ran.out.split())
    assert re.match(r"REDUCED BY [A-Z ]+ \([0-9.]+ %\)[^:]*: the accuracy gap by scanner\s+went from ", text)
    assert "Who gains: old is " in text
    assert "Who pays: " in text
    assert "smallest accuracy gap by scanner of those that break clearly less than" in " ".join(ran.err.split())
    return folder / "fix"


def test_the_page_and_the_card_tell_the_gap_and_who_pays(fixed: Path) -> None:
    page = (fixed / "report.html").read_text(encoding="utf-8")
    assert 'id="groups"' in page
    assert "Who pays: " in page
    assert 'data-number="objective"' in page


def test_points_are_listed_by_the_objective_without_model_or_data(fixed: Path) -> None:
    ran = arachne("choose", fixed, cwd=fixed.parent)
    assert "accuracy gap by" in " ".join(ran.out.split())
    other = arachne("choose", fixed, "--objective", "worst", "--max-break", "2%", "--json", cwd=fixed.parent).json
    assert other["chosen_by"]["rule"].startswith("highest worst group's accuracy by scanner of those")
    strict = arachne("choose", fixed, "--max-group-drop", "new=0", "--json", cwd=fixed.parent).json
    assert strict["budgets"]["max_group_drop"] == {"new": 0.0}


def test_a_model_without_a_patch_is_measured_by_groups_too(folder: Path) -> None:
    ran = arachne("evaluate", DEMO / "digits.onnx", "--data", "scans.npz", "--objective", "gap:scanner", cwd=folder)
    assert ran.code == 0, ran.err
    lines = [" ".join(line.split()) for line in ran.out.splitlines()]
    assert lines[1] == "accuracy gap by scanner: 46.8 points (95 %: 39.1 – 54.4 points)"
    assert "old 162 49.4 % 41.8 – 57.0" in lines
    told = arachne(
        *("evaluate", DEMO / "digits.onnx", "--data", "scans.npz", "--objective", "odds:scanner", "--json"), cwd=folder
    ).json
    assert told["held_out"]["fairness"]["objective"] == "odds"
    assert {one["name"] for one in told["held_out"]["fairness"]["classes"]} == {"old", "new"}


def test_any_patch_is_measured_by_groups_and_gated(folder: Path, fixed: Path) -> None:
    model, patch = str(DEMO / "digits.onnx"), str(fixed / "patch.json")
    run = ("evaluate", model, "--data", "scans.npz", "--patch", patch, "--fail-if", "objective > 20%")
    ran = arachne(*run, "--objective", "worst:scanner", "--report", "page.html", "--json", cwd=folder)
    assert ran.code == 1  # the worst group is right more often than 20 % of the time
    assert ran.json["held_out"]["fairness"]["objective"] == "worst"
    page = (folder / "page.html").read_text(encoding="utf-8")
    assert 'id="groups"' in page
    assert 'id="saliency"' in page


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("--objective", "gab"), 2, "no objective named 'gab'; did you mean 'gap'"),
        (("--objective", "gap:scaner"), 2, "needs the metadata column 'scaner'; did you mean 'scanner'"),
        (("--objective", "odds", "-O", "group_size=400"), 3, "needs 400 seen inputs"),
        (("-O", "group_size=5"), 2, "group_size is an option of the objectives 'gap', 'odds' and 'worst'"),
        (("--objective", "gap:scanner", "-O", "group_column=scanner"), 2, "both name a column"),
        (("--objective", "gap", "--faithful"), 2, "knows no objective"),
        (("--max-group-drop", "older=0"), 2, "names the group 'older', which the data does not have; did you mean"),
        (("--max-group-drop", "old"), 2, "expected GROUP=SHARE such as female=0"),
    ],
)
def test_mistakes_are_answered_in_one_sentence(folder: Path, options: tuple[str, ...], code: int, message: str) -> None:
    ran = arachne(*REPAIR, *options, cwd=folder)
    assert (ran.code, message in " ".join(ran.err.split())) == (code, True), ran.err
