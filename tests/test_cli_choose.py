"""Budgets on the command line, and `arachne choose`."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest

from arachne.model.registry import load
from tests.commands import Ran, arachne

pytestmark = pytest.mark.backend("onnx")

DEMO = Path(__file__).parent.parent / "arachne" / "demo"
REPAIR = shlex.split(
    "repair digits.onnx --data digits.npz --target '*:7' --search de -O population=24 -O generations=12"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("choose")
    for name in ("digits.onnx", "digits.npz"):
        shutil.copyfile(DEMO / name, folder / name)
    with np.load(folder / "digits.npz") as data:
        np.savez(folder / "golden.npz", x=data["x"][:40], y=data["y"][:40])
    return folder


@pytest.fixture(scope="module")
def fixed(folder: Path) -> tuple[Path, Ran]:
    ran = arachne(*REPAIR, "--max-break", "2%", "--never-break", "golden.npz", "-o", "fix", "--json", cwd=folder)
    assert ran.code == 0, ran.err
    return folder / "fix", ran


def test_a_repair_with_a_budget_keeps_its_front(fixed: tuple[Path, Ran]) -> None:
    fix, ran = fixed
    assert {"front.npz", "patch.json", "model.onnx"} <= {path.name for path in fix.iterdir()}
    assert ran.json["budget"] == ran.json["budgets"]["max_break"] == 0.02
    assert ran.json["chosen_by"]["searcher"] == "de"
    assert len(ran.json["front"]) == 4
    assert ran.json["budgets"]["never_break"]["broken"] == 0
    assert ran.json["budgets"]["never_break"]["name"] == "golden.npz"
    assert "never break:" in ran.err
    assert ran.json["provenance"]["settings"]["budget"]["max_break"] == 0.02


def test_a_guarantee_and_an_end_by_the_time_limit_are_told(folder: Path) -> None:
    sure = arachne(*REPAIR, "--max-break", "5%", "--confidence", "90%", cwd=folder)
    assert re.search(
        r"^guaranteed on inputs kept from the search, at most 5.00 % broken, with 90.0 % confidence: .* broken",
        sure.err,
        re.MULTILINE,
    ), sure.err
    short = arachne(*REPAIR, "--time-limit", "0", cwd=folder)
    assert "; the time limit ended the search, and a longer one may find more\n" in short.err


def test_half_is_not_taken_for_half_a_per_cent_in_silence(folder: Path) -> None:
    ran = arachne(*REPAIR, "--max-break", "0.5", cwd=folder)
    assert "note: this budget is 50.0 % of what is right; half a per cent is 0.5% or 0.005\n" in ran.err


def test_choose_lists_the_points_without_model_or_data(fixed: tuple[Path, Ran], tmp_path: Path) -> None:
    shutil.copytree(fixed[0], tmp_path / "fix")
    ran = arachne("choose", "fix", cwd=tmp_path)
    assert ran.code == 0, ran.err
    assert len(re.findall(r" de +\d+", ran.out)) == 4
    assert re.search(r"^ ?\* .* %", ran.out, re.MULTILINE)
    assert "held" not in ran.out
    listed = arachne("choose", "fix", "--json", cwd=tmp_path)
    assert listed.json["schema"] == "arachne.front/1"
    assert listed.json["front"] == fixed[1].json["front"]


def test_choose_writes_another_point_as_a_whole_result(fixed: tuple[Path, Ran], folder: Path) -> None:
    safest = fixed[1].json["front"][3]
    ran = arachne("choose", "fix", "--max-break", "0.3%", "-o", "safe", "--json", cwd=folder)
    assert ran.code == 0, ran.err
    assert {path.name for path in (folder / "safe").iterdir()} == {path.name for path in fixed[0].iterdir()}
    assert ran.json["budget"] == 0.003
    assert ran.json["front"] == fixed[1].json["front"]
    assert ran.json["held_out"]["broken"] == ran.json["front"][ran.json["chosen"]]["held_out"]["broken"]
    assert ran.json == json.loads((folder / "safe" / "result.json").read_text())
    assert safest["seen"]["broken"] <= fixed[1].json["front"][0]["seen"]["broken"]
    measured = arachne("evaluate", "digits.onnx", "--data", "digits.npz", "--patch", "safe/patch.json", cwd=folder)
    assert measured.code == 0, measured.err
    again = arachne("choose", "safe", "--max-break", "2%", "-o", "back", "--json", cwd=folder)
    assert again.json["chosen"] == fixed[1].json["chosen"]
    assert (folder / "back" / "model.onnx").read_bytes() == (fixed[0] / "model.onnx").read_bytes()


def test_choosing_the_same_patch_again_is_said(fixed: tuple[Path, Ran], folder: Path) -> None:
    ran = arachne("choose", "fix", "--max-break", "2%", "-o", "again", cwd=folder)
    assert ran.code == 0, ran.err
    assert "it is the patch of 'fix' again" in " ".join(ran.err.split())
    other = arachne("choose", "fix", "--max-break", "0.3%", "-o", "safer", "--json", cwd=folder)
    assert other.json["chosen"] != fixed[1].json["chosen"]
    assert "again" not in arachne("choose", "fix", "--max-break", "0.3%", "-o", "safest", cwd=folder).err


def test_moved_files_are_given_again_and_changed_ones_refused(fixed: tuple[Path, Ran], tmp_path: Path) -> None:
    fix = fixed[0]
    for name in ("digits.npz", "golden.npz"):
        shutil.copyfile(fix.parent / name, tmp_path / name)
    shutil.copyfile(fix.parent / "digits.onnx", tmp_path / "moved.onnx")
    lost = arachne("choose", fix, "--max-break", "1%", "-o", "one", cwd=tmp_path)
    assert lost.code == 3
    assert "digits.onnx" in lost.err
    ran = arachne("choose", fix, "moved.onnx", "--max-break", "1%", "-o", "one", cwd=tmp_path)
    assert ran.code == 0, ran.err
    with np.load(tmp_path / "digits.npz") as data:
        np.savez(tmp_path / "digits.npz", x=data["x"], y=np.roll(data["y"], 1))
    ran = arachne("choose", fix, "moved.onnx", "--max-break", "1%", "-o", "two", cwd=tmp_path)
    assert ran.code == 3
    assert re.search(r"its sha256 is [0-9a-f]{64}, expected [0-9a-f]{64}", ran.err)
    assert not (tmp_path / "two").exists()


def test_nothing_within_the_budget_exits_6_and_writes_nothing(folder: Path) -> None:
    """Every repair breaks an input here: what is to be repaired has to stay a seven as well."""
    with np.load(folder / "digits.npz") as data:
        x, wrong = data["x"], data["y"] != 7
    sevens = load(folder / "digits.onnx").predict(x) == 7
    np.savez(folder / "sevens.npz", x=x[sevens & wrong], y=np.full((sevens & wrong).sum(), 7))
    ran = arachne(*REPAIR, "--max-break", "9%", "--never-break", "sevens.npz", "--json", "-o", "none", cwd=folder)
    assert ran.code == 6, ran.err
    assert (ran.json["verdict"], ran.json["chosen"]) == ("nothing within the budget", None)
    assert not (folder / "none").exists()
    assert ran.err.strip().splitlines()[-1].startswith("error: nothing within the budget: none of 4 candidates")


@pytest.mark.parametrize(
    ("code", "arguments", "words"),
    [
        (2, [*REPAIR, "--max-break", "150%"], "below 100 %"),
        (2, [*REPAIR, "--max-break", "5"], "did you mean 5%?"),
        (2, [*REPAIR, "--confidence", "90"], "did you mean 90%?"),
        (2, [*REPAIR, "--max-class-drop", "stop"], "CLASS=SHARE"),
        (2, [*REPAIR, "--max-class-drop", "stop=0"], "names the class 'stop'"),
        (2, [*REPAIR, "--faithful", "--max-break", "1%"], "knows no budget"),
        (3, [*REPAIR, "--confidence", "90%"], "takes 460 inputs"),
        (3, ["choose", "."], "has no result.json"),
        (3, ["choose", "plain"], "without a budget"),
        (2, ["choose", "fix", "--max-break", "1%", "-o", "fix"], "is an input (FOLDER)"),
        (6, ["choose", "fix", "--max-break", "1%", "--confidence", "90%", "-o", "new"], "takes 230 inputs"),
    ],
)
def test_mistakes_get_one_sentence(
    code: int, arguments: list[str], words: str, fixed: tuple[Path, Ran], folder: Path
) -> None:
    (folder / "plain").mkdir(exist_ok=True)
    (folder / "plain" / "result.json").write_text('{"command": "repair"}')
    ran = arachne(*arguments, cwd=folder)
    assert words in ran.err
    assert ran.code == code
    assert len([line for line in ran.err.splitlines() if line.startswith("error:")]) == 1
