"""A detector is repaired from the command line: false alarms go, objects stay, boxes do not move."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

import arachne
from arachne.data.run import run_part
from arachne.data.split import split_by_outcome
from arachne.decisions.losses import cross_entropies, cross_entropy
from arachne.errors import DataError
from arachne.localise.sparing import layers_behind
from arachne.scoring.base import DecisionScorer
from arachne.scoring.cut import Cuts, CutScorer
from arachne.tasks import Detection
from arachne.tasks.detection.boxes import ANCHOR
from arachne.weights.selection import Selection
from tests.backends.onnx_detector import make_cell_detector, write_cells
from tests.commands import Ran
from tests.commands import arachne as run_in

pytestmark = pytest.mark.backend("onnx")

STEPS = "scale=1/255 layout=nchw"


def run(*arguments: str | Path, code: int = 0) -> Ran:
    """Run a command, which should end with a code."""
    done = run_in(*arguments, cwd=Path.cwd())
    assert done.code == code, done.err
    return done


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the detector, pictures to repair and pictures to judge."""
    folder = tmp_path_factory.mktemp("cells")
    onnx.save(make_cell_detector(), folder / "cells.onnx")
    write_cells(folder / "repair", 80, seed=5)
    write_cells(folder / "judge", 80, seed=6)
    return folder


def test_false_alarms_are_repaired_from_the_command_line(place: Path, tmp_path: Path) -> None:
    arguments = ["--task", "detection", "--preprocess", STEPS]
    scanned = run("scan", place / "cells.onnx", "--data", place / "repair", *arguments)
    assert "false:red" in scanned.out
    out = tmp_path / "fix"
    done = run(
        "repair",
        place / "cells.onnx",
        "--data",
        place / "repair",
        "--holdout",
        place / "judge",
        *arguments,
        "--target",
        "false:red",
        "-o",
        out,
    )
    assert "1 layer of 3 may change: those that boxes do not depend on" in done.err
    assert "boxes after non-maximum suppression" in done.out
    figures = json.loads((out / "result.json").read_text())["figures"]
    cells = dict(zip(figures["columns"], figures["rows"][-1], strict=True))
    assert cells["false alarms after"] <= 0.4 * cells["false alarms before"]
    assert cells["found after"] >= 0.99 * cells["found before"]
    assert cells["AP50 after"] > cells["AP50 before"]
    page = (out / "report.html").read_text()
    assert 'id="figures"' in page
    result = arachne.measure(
        place / "cells.onnx",
        arachne.read_data(place / "judge", preprocess=STEPS, task=Detection()),
        patch=out / "patch.json",
    )
    fixed = result.held_out.fixed
    assert fixed.frames is not None
    sides = fixed.frames[:, 2:] - fixed.frames[:, :2]
    np.testing.assert_allclose(sides, 1 / 4, atol=0.02)  # one of four cells, where the false alarm was
    data = arachne.read_data(place / "judge", preprocess=STEPS, task=Detection())
    old, new = (arachne.load(path).forward(data.inputs) for path in (place / "cells.onnx", out / "model.onnx"))
    np.testing.assert_array_equal(old[:, :4], new[:, :4])
    np.testing.assert_array_equal(old[:, 5], new[:, 5])
    again = run(
        "evaluate", place / "cells.onnx", "--patch", out / "patch.json", "--data", place / "judge", *arguments[2:]
    )
    assert "boxes after non-maximum suppression" in again.out


def test_decisions_come_from_the_original_model_and_gradients_are_their_slopes(place: Path) -> None:
    backend = arachne.load(place / "cells.onnx")
    data = arachne.read_data(place / "repair", preprocess=STEPS, task=Detection())
    split = split_by_outcome(backend, data, "false:red", rng=np.random.default_rng(0), task=Detection())
    part = split.seen
    assert part.class_names == ("background", "red", "green")
    assert len(part.decisions) == np.count_nonzero(
        part.data.labels[..., ANCHOR]
    )  # anchors, and the rest of each picture
    changed = part.outputs.copy()
    changed[:, 4:] = 0.01
    np.testing.assert_array_equal(part.read(changed).inputs, part.decisions.inputs)
    selection = Selection.of(
        backend,
        [arachne.Address("class", "weight", (0, 3, 0, 0)), arachne.Address("class", "weight", (1, 2, 0, 0))],
    )
    rows = np.arange(0, len(part.decisions), 7)
    scorer = DecisionScorer(CutScorer(backend, Cuts(backend, part.data.inputs), selection), part.choose_decisions(rows))
    each, labels = np.arange(len(rows)), part.labels[rows]
    np.testing.assert_allclose(scorer.scores(selection.values, each), part.scores[rows], rtol=1e-4, atol=1e-4)
    slope = scorer.gradients(selection.values, cross_entropy(labels), each)
    for number in range(len(selection)):
        step = np.zeros(len(selection))
        step[number] = 0.02
        up, down = (
            cross_entropies(scorer.scores(selection.values + sign * step, each), labels).mean() for sign in (1, -1)
        )
        np.testing.assert_allclose(slope[number], (up - down) / 0.04, rtol=0.02, atol=1e-4)


def test_layers_behind_boxes_are_told_by_gradients(place: Path) -> None:
    backend = arachne.load(place / "cells.onnx")
    data = arachne.read_data(place / "repair", preprocess=STEPS, task=Detection(), limit=4)
    part = run_part(backend, data, task=Detection())
    spared = part.task.spared_outputs(part.outputs)
    assert spared is not None
    assert layers_behind(backend, part.data.inputs, spared) == {"body", "box"}


def test_labels_that_are_no_boxes_are_refused(place: Path) -> None:
    backend = arachne.load(place / "cells.onnx")
    inputs = np.zeros((3, 3, 32, 32), np.float32)
    with pytest.raises(DataError, match="expected boxes as labels"):
        arachne.scan(backend, (inputs, np.array([0, 1, 0])), task="detection")
    with pytest.raises(DataError, match="no picture has a labelled box"):
        arachne.scan(backend, (inputs, np.zeros((3, 2, 6))), task="detection")


def test_the_obvious_mistakes(place: Path) -> None:
    arguments: list[str | Path] = [place / "cells.onnx", "--data", place / "repair", "--preprocess", STEPS]
    unnamed = run("scan", *arguments, code=3)
    assert "--task" in unnamed.err
    unknown = run("repair", *arguments, "--task", "detection", "--target", "false:blue", "-o", place / "no", code=2)
    assert "blue" in unknown.err
    above = run("scan", *arguments, "--task", "detection", "--threshold", "2", code=2)
    assert "above 0 and below 1" in above.err
    wrong = run("scan", *arguments[:3], "--preprocess", "scale=1/255", "--task", "detection", code=3)
    assert wrong.err.startswith("error: ")
