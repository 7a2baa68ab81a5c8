"""Every task under every command, and in Python: on tiny networks that get some decisions wrong."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest

import arachne as library
from arachne.model.values import Array
from arachne.settings import make_task
from tests.backends.onnx_detector import make_cell_detector, write_cells
from tests.commands import arachne
from tests.test_cli_tasks import WIDTH, make

pytestmark = pytest.mark.backend("onnx")

NAMES = ("road", "sidewalk", "sky")


@dataclass(frozen=True)
class Case:
    """A task: how its data is made, the words of a command line for it, and its target."""

    write: Callable[[Path], None]
    words: Sequence[str]
    target: str
    noun: str
    data: str = "data.npz"
    search: str = "last-layer"


def draw(*shape: int) -> tuple[Array, Array]:
    """Inputs around three centres, one for each class, and their classes."""
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=shape)
    return (rng.normal(size=(3, WIDTH))[y] + 0.7 * rng.normal(size=(*shape, WIDTH))).astype(np.float32), y


def write_classes(folder: Path, *shape: int) -> None:
    x, y = draw(*shape)
    make(folder, "onnx", None, x, y, 3.0 * np.eye(3)[y], np.array([0, 1.5, 0]), class_names=NAMES)


def write_binary(folder: Path) -> None:
    x, y = draw(300)
    make(folder, "onnx", None, x, np.array(["safe", "unsafe"])[y // 2], 2.0 * (y > 1) - 1, np.array([0.5]))


def write_multilabel(folder: Path) -> None:
    x, y = draw(300)
    there = np.eye(3)[y]
    make(folder, "onnx", "Sigmoid", x, there, 2 * there - 1, np.array([0, 0.5, 0]), class_names=NAMES)


def write_regression(folder: Path) -> None:
    x, y = draw(300)
    make(folder, "onnx", None, x, y.astype(float), y.astype(float), np.array([0.4]))


def write_detection(folder: Path) -> None:
    onnx.save(make_cell_detector(), folder / "model.onnx")
    write_cells(folder / "data", 80, seed=5)


STEPS = ("--preprocess", "scale=1/255 layout=nchw")
CASES = {
    "binary": Case(write_binary, (), "false:unsafe", "inputs"),
    "multilabel": Case(write_multilabel, ("--task", "multilabel"), "false:sidewalk", "labels"),
    "tokens": Case(lambda folder: write_classes(folder, 120, 4), ("--task", "tokens"), "*:sidewalk", "tokens"),
    "segmentation": Case(
        lambda folder: write_classes(folder, 60, 4, 4), ("--task", "segmentation"), "road:sidewalk", "pixels"
    ),
    "regression": Case(write_regression, ("--task", "regression", "--tolerance", "0.5"), "over", "numbers"),
    "detection": Case(write_detection, ("--task", "detection", *STEPS), "false:red", "anchors", "data", "margin@conv"),
    "rule": Case(lambda folder: write_classes(folder, 300), (), "rule:not sidewalk", "inputs"),
}


@dataclass(frozen=True)
class Done:
    """A case with a repair in the folder `fix`."""

    name: str
    case: Case
    folder: Path

    def run(self, command: str, *words: str) -> str:
        """Run a command that should succeed; standard output."""
        done = arachne(command, *words, cwd=self.folder)
        assert done.code == 0, f"{self.name}: {done.err}"
        return done.out

    @property
    def inputs(self) -> tuple[str, ...]:
        return "model.onnx", "--data", self.case.data, *self.case.words

    @property
    def steps(self) -> tuple[str, ...]:
        """The words that a patch does not remember."""
        return STEPS if self.name == "detection" else ()


@pytest.fixture(scope="module", params=CASES)
def done(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Done:
    """Every task in turn, repaired once."""
    return run_repair(request.param, str(tmp_path_factory.getbasetemp()))


@cache
def run_repair(name: str, base: str) -> Done:
    folder = Path(base) / f"every-{name}"
    folder.mkdir()
    CASES[name].write(folder)
    made = Done(name, CASES[name], folder)
    budget = ("--max-break", "10%", "--search", made.case.search, "--junit", "gates.xml", "--fail-if", "repaired < 1")
    found = arachne("repair", *made.inputs, "--target", made.case.target, *budget, "-o", "fix", cwd=folder)
    assert found.code == 0, found.err
    return made


def test_repair_counts_what_the_task_decides(done: Done) -> None:
    result = json.loads((done.folder / "fix" / "result.json").read_text())
    held_out = result["held_out"]
    assert held_out.get("counted", "inputs") == done.case.noun
    assert 0 < held_out["repaired"] <= held_out["negatives"]
    assert not [note for note in result["notes"] if "no inputs in the data" in note]
    suites = ElementTree.parse(done.folder / "gates.xml").getroot().findall("testsuite")
    assert [suite.get("failures") for suite in suites] == ["0"]


def test_scan_lists_mistakes_in_the_words_of_the_task(done: Done) -> None:
    if done.name == "rule":
        refused = arachne("scan", *done.inputs, "--task", "rule", "--json", cwd=done.folder)
        assert refused.code == 2
        assert "rule" in refused.err
        return
    found = json.loads(done.run("scan", *done.inputs, "--json", "--page", "scan.html", "--force"))
    assert found["faults"]
    targets = {fault["target"] for fault in found["faults"]}
    assert done.case.target in targets or done.name in ("tokens", "binary"), targets
    assert (done.folder / "scan.html").stat().st_size > 1000


def test_localise_evaluate_and_report(done: Done) -> None:
    json.loads(done.run("localise", *done.inputs, "--target", done.case.target, "--json"))
    result = json.loads((done.folder / "fix" / "result.json").read_text())
    measured = ("model.onnx", "--data", done.case.data, *done.steps, "--patch", "fix/patch.json", "--json")
    again = json.loads(done.run("evaluate", *measured, "--report", "page.html", "--force"))
    assert again["held_out"]["repaired"] == result["held_out"]["repaired"]
    assert again["held_out"]["broken"] == result["held_out"]["broken"]
    assert done.case.target.partition(":")[2] in (done.folder / "page.html").read_text("utf-8")
    before = (done.folder / "fix" / "report.html").read_text("utf-8")
    done.run("report", "fix", "-o", "again.html", "--force")
    assert "<html" in before
    done.run("show", "fix/patch.json")


def test_apply_choose_and_compare(done: Done) -> None:
    applied = ("fix/patch.json", "model.onnx", "-o", "fixed.onnx", "--force", "--data", done.case.data, *done.steps)
    done.run("apply", *applied)
    assert (done.folder / "fixed.onnx").read_bytes() != (done.folder / "model.onnx").read_bytes()
    chosen = ("fix", "model.onnx", "--data", done.case.data, *done.steps, "--max-break", "20%", "-o", "more", "--force")
    done.run("choose", *chosen)
    first, other = (json.loads((done.folder / name / "result.json").read_text()) for name in ("fix", "more"))
    assert other["held_out"]["negatives"] == first["held_out"]["negatives"]
    searches = ("--search", done.case.search, "--search", "bias", "--max-break", "10%")
    rows = json.loads(done.run("compare", *done.inputs, "--target", done.case.target, *searches, "--json"))
    assert len(rows["searchers"]) == 2


def test_the_same_in_python(done: Done) -> None:
    words = dict(zip(done.case.words[::2], done.case.words[1::2], strict=True))
    options = {"tolerance": 0.5} if done.name == "regression" else {}
    task = make_task(words["--task"], **options) if "--task" in words else None
    source = done.folder / done.case.data
    data = library.read_data(source, preprocess=words.get("--preprocess"), task=task)
    result = library.repair(
        done.folder / "model.onnx", data, done.case.target, task=task, max_break=0.1, searcher=done.case.search
    )
    stored = json.loads((done.folder / "fix" / "result.json").read_text())
    assert result.evidence.held_out.repaired == stored["held_out"]["repaired"]
    measured = library.measure(done.folder / "model.onnx", data, patch=result.patch)
    assert measured.held_out.repaired == result.evidence.held_out.repaired
    if done.name != "rule":
        assert library.scan(done.folder / "model.onnx", data, task=task).faults


def test_causes_are_found_or_left_out_with_a_reason(done: Done) -> None:
    if done.name == "rule":
        return
    words = ("--target", "cause:1", "--search", done.case.search, "--max-break", "20%", "-o", "by-cause")
    found = arachne("repair", *done.inputs, *words, cwd=done.folder)
    if done.name == "binary":
        assert "no common cause" in found.err
        return
    assert found.code == 2
    assert f"causes are looked for where each input has one label, and the task is '{done.name}'" in found.err


def test_a_cause_of_false_alarms_of_one_raw_output_is_a_target(tmp_path: Path) -> None:
    x, y = draw(900)
    printed = np.random.default_rng(1).random(900) < 0.15
    x[printed, 0] = 9.0
    unsafe = y > 1
    make(tmp_path, "onnx", None, x, np.array(["safe", "unsafe"])[1 * unsafe], 2.0 * (unsafe | printed) - 1, np.zeros(1))
    causes = arachne("scan", "model.onnx", "--data", "data.npz", "--json", cwd=tmp_path).json["causes"]
    assert causes
    words = ("--target", "cause:1", "--search", "margin", "--max-break", "5%", "-o", "fix", "--json")
    fixed = arachne("repair", "model.onnx", "--data", "data.npz", *words, cwd=tmp_path)
    assert fixed.code == 0, fixed.err
    held_out = fixed.json["held_out"]
    assert held_out["repaired"] > 0.5 * held_out["negatives"] > 5
    again = arachne("evaluate", "model.onnx", "--data", "data.npz", "--patch", "fix/patch.json", "--json", cwd=tmp_path)
    assert again.json["held_out"]["repaired"] == held_out["repaired"]
