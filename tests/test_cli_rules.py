"""Rules and inputs to keep as they are, on the command line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from arachne.model.registry import load
from tests.commands import Ran, arachne

pytestmark = pytest.mark.backend("onnx")

DEMO = Path(__file__).parent.parent / "arachne" / "demo"
REPAIR = ("repair", "digits.onnx", "--data", "marked.npz", "--target", "rule:not 7", "--keep-as-is", "traffic.npz")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures with a bright corner, which are read as 7, and all others; none has a label."""
    folder = tmp_path_factory.mktemp("rules")
    shutil.copyfile(DEMO / "digits.onnx", folder / "digits.onnx")
    with np.load(DEMO / "digits.npz") as data:
        marked = data["x"][:, 0, 0, 0] > 0.9
        np.savez(folder / "marked.npz", x=data["x"][marked])
        np.savez(folder / "traffic.npz", x=data["x"][~marked])
        np.savez(folder / "labelled.npz", x=data["x"], y=data["y"])
    np.savez(folder / "wide.npz", x=np.zeros((3, 1, 9, 9), np.float32))
    return folder


@pytest.fixture(scope="module")
def fixed(folder: Path) -> tuple[Path, Ran]:
    ran = arachne(*REPAIR, "--search", "front", "--max-break", "1%", "-o", "fix", "--json", cwd=folder)
    assert ran.code == 0, ran.err
    return folder / "fix", ran


def test_a_repair_by_a_rule_tells_what_kept_it_and_what_changed(fixed: tuple[Path, Ran]) -> None:
    fix, ran = fixed
    held_out = ran.json["held_out"]
    assert held_out["negatives"] >= 40
    assert held_out["repair_rate"] > 0.9
    assert held_out["kept"]["decisions"] == held_out["positives"] == 408
    assert held_out["kept"]["changed"] == held_out["broken"] <= 4
    assert ran.json["target"] == "rule:not 7"
    assert ran.json["provenance"]["keep_as_is"]["name"] == "traffic.npz"
    assert "inputs that broke the rule" in ran.json["sentence"]
    assert "kept decisions changed" in ran.json["balance"]
    page = (fix / "report.html").read_text("utf-8")
    assert "kept decisions changed" in page
    assert "inputs that broke the rule keep it now" in page
    assert "Accuracy by class" not in page
    assert "kept decisions changed" in (fix / "MODEL_CARD.md").read_text("utf-8")


def test_what_is_told_is_what_the_patched_model_does(folder: Path, fixed: tuple[Path, Ran]) -> None:
    evaluated = arachne(
        *("evaluate", "digits.onnx", "--patch", "fix/patch.json", "--data", "marked.npz"),
        *("--keep-as-is", "traffic.npz", "--json"),
        cwd=folder,
    )
    assert evaluated.code == 0, evaluated.err
    before, after = load(folder / "digits.onnx"), load(folder / "fix" / "model.onnx")
    marked, traffic = (np.load(folder / name)["x"] for name in ("marked.npz", "traffic.npz"))
    changed = (before.forward(traffic).argmax(1) != after.forward(traffic).argmax(1)).sum()
    broke, breaks = ((model.forward(marked).argmax(1) == 7) for model in (before, after))
    parts = [evaluated.json[part] for part in ("seen", "held_out") if part in evaluated.json]
    assert sum(part["kept"]["changed"] for part in parts) == changed
    assert sum(part["repaired"] for part in parts) == int((broke & ~breaks).sum())


def test_another_point_of_a_front_by_a_rule(folder: Path, fixed: tuple[Path, Ran]) -> None:
    ran = arachne("choose", "fix", "--max-break", "2%", "-o", "bolder", "--json", cwd=folder)
    assert ran.code == 0, ran.err
    assert ran.json["held_out"]["kept"]["decisions"] == 408
    assert json.loads((folder / "bolder" / "result.json").read_text("utf-8"))["target"] == "rule:not 7"


def test_a_copy_is_measured_by_the_rule(folder: Path, fixed: tuple[Path, Ran]) -> None:
    apply = ("apply", "fix/patch.json", "digits.onnx", "-o", "copy.onnx")
    ran = arachne(*apply, "--data", "marked.npz", "--keep-as-is", "traffic.npz", "--json", cwd=folder)
    assert ran.code == 0, ran.err
    assert ran.json["promise"].startswith("as the patch promised: rule kept ")
    (folder / "copy.onnx").unlink()
    ran = arachne(*apply, "--keep-as-is", "traffic.npz", cwd=folder)
    assert ran.code == 2
    assert "--keep-as-is goes with --data" in ran.err


def test_kept_inputs_that_break_the_rule_are_told(folder: Path) -> None:
    sevens = (load(folder / "digits.onnx").forward(np.load(folder / "traffic.npz")["x"]).argmax(1) == 7).sum()
    ran = arachne(*REPAIR, "--search", "last-layer", cwd=folder)
    assert f"{sevens} of 816 inputs to keep as they are break the rule themselves, and are kept so" in ran.err


def test_kept_inputs_beside_labels(folder: Path) -> None:
    words = ("repair", "digits.onnx", "--data", "labelled.npz", "--target", "*:7", "--search", "last-layer", "--json")
    np.savez(folder / "noisy.npz", x=np.clip(np.load(folder / "traffic.npz")["x"][:200] + 0.05, 0, 0.8))
    ran = arachne(*words, "--max-break", "1%", "--keep-as-is", "noisy.npz", cwd=folder)
    assert ran.code == 0, ran.err
    held_out = ran.json["held_out"]
    assert held_out["kept"]["decisions"] == pytest.approx(100, abs=5)
    assert held_out["words"]["share"] == "accuracy"
    assert held_out["inputs"] == pytest.approx(450 + 100, abs=8)


@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [
        (["--target", "rule:not 7", "--target", "3:4"], 2, "a rule stands alone, got 2 targets"),
        (["--target", "rule:7"], 2, "expected a rule such as 'rule:not 2,3,4'"),
        (["--target", "rule:not 70"], 2, "names the class '70', which the model does not have"),
        (["--target", "rule:not 7", "--keep-as-is", "wide.npz"], 3, "must have the shape (1, 8, 8) of the data's"),
        (["--target", "rule:not 7", "--keep-as-is", "marked.npz"], 3, "stand in the data already"),
        (["--target", "rule:not 7", "--keep-as-is", "none.npz"], 3, "data 'none.npz' does not exist"),
        (["--target", "rule:any of 7"], 5, "inputs keep 'rule:any of 7', so there is nothing to repair"),
        (["--target", "*:7"], 3, "has no array 'y' with the labels"),
    ],
)
def test_obvious_mistakes_get_a_sentence(folder: Path, changes: list[str], code: int, message: str) -> None:
    ran = arachne("repair", "digits.onnx", "--data", "marked.npz", *changes, cwd=folder)
    assert (ran.code, message in ran.err) == (code, True), ran.err
