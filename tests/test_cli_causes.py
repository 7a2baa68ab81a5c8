"""`arachne scan` names what mistakes share, in text, as JSON and on a page; `--target cause:1` repairs it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.commands import arachne

DEMO = Path(__file__).parent.parent / "arachne" / "demo"
pytestmark = pytest.mark.backend("onnx")
SCAN = ("scan", "digits.onnx", "--data", "digits.npz")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("causes")
    for name in ("digits.onnx", "digits.npz"):
        shutil.copy(DEMO / name, folder)
    return folder


def test_the_demos_scan_names_the_stuck_pixel(folder: Path) -> None:
    ran = arachne(*SCAN, cwd=folder)
    assert ran.code == 0
    assert "cause:1  80 errors, all read as 7: pixel (0, 0) is 1;" in ran.out
    assert "confirmed by experiment: planted on" in " ".join(ran.out.split())
    assert "no common cause found for 30 errors" in ran.out
    assert "cause:" not in arachne(*SCAN, "--no-causes", cwd=folder).out


def test_json_has_the_causes_with_their_rows_and_rules(folder: Path) -> None:
    (cause,) = arachne(*SCAN, "--json", cwd=folder).json["causes"]
    assert set(cause) == {"target", "finder", "sentence", "count", "p", "members", "rule", "experiment"}
    tried = cause["experiment"]
    assert tried["verdict"] == "confirmed"
    assert tried["planted"]["fail"] >= 0.9 * tried["planted"]["inputs"] > 0
    assert tried["removed"]["right"] >= 0.6 * tried["removed"]["inputs"] > 0
    assert (cause["target"], cause["finder"], cause["count"]) == ("cause:1", "inputs", len(cause["members"]))
    assert cause["rule"]["kind"] == "values"
    ran = arachne(*SCAN, "-o", "scan.json", "--json", cwd=folder)
    assert json.loads((folder / "scan.json").read_text(encoding="utf-8")) == ran.json


def test_the_page_is_one_file_with_the_region_outlined(folder: Path) -> None:
    ran = arachne(*SCAN, "--page", "scan.html", cwd=folder)
    assert ran.code == 0
    page = (folder / "scan.html").read_text(encoding="utf-8")
    assert page.count('<rect class="outline" x="0.0" y="0.0" width="1.0" height="1.0"/>') == 12
    assert "The nearest inputs that are right" in page
    assert "difference of mean pictures" in page
    assert page.count('class="pair"') == 12
    assert page.lower().count("confirmed by experiment: planted on") == 1
    command = "arachne repair digits.onnx --data digits.npz --target cause:1 -o fix"
    assert f"<pre>{command}</pre>" in page
    assert command in ran.err
    assert "forecast for" not in ran.err  # of a confusion, where a cause is what to repair
    assert "http" not in page.replace("http-equiv", "")
    assert "<script" not in page


def test_another_point_of_a_repaired_cause_can_be_chosen(folder: Path) -> None:
    asked = ("repair", "digits.onnx", "--data", "digits.npz", "--target", "cause:1", "-o", "by-cause")
    assert arachne(*asked, cwd=folder).code == 0
    other = arachne("choose", "by-cause", "--max-break", "2%", "-o", "by-cause-other", "--json", cwd=folder)
    assert other.code == 0, other.err
    assert other.json["verdict"] == "removed"


def test_a_target_without_a_patch_is_counted(folder: Path) -> None:
    ran = arachne("evaluate", "digits.onnx", "--data", "digits.npz", "--target", "0:7", cwd=folder)
    assert ran.out.startswith("target 0:7: 12 of 899 inputs show it (1.33 %)")


def test_a_cause_is_repaired_at_least_as_well_as_the_confusion_it_shows_in(folder: Path) -> None:
    cause, habit = (
        arachne("repair", "digits.onnx", "--data", "digits.npz", "--target", target, "--json", cwd=folder).json
        for target in ("cause:1", "*:7")
    )
    assert cause["verdict"] == "removed"
    assert cause["held_out"]["repair_rate"] >= habit["held_out"]["repair_rate"]


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (["--page", "x.html", "--no-causes"], 2, "--page shows causes"),
        (["--page", "nowhere/x.html"], 4, "nowhere"),
    ],
)
def test_a_page_that_cannot_be_made_is_refused(folder: Path, options: list[str], code: int, words: str) -> None:
    ran = arachne(*SCAN, *options, cwd=folder)
    assert ran.code == code
    assert words in ran.err
