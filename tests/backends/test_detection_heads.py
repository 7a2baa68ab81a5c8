"""Detectors whose outputs are not one tensor: boxes and scores apart, and non-maximum suppression in the graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

import arachne
from arachne.errors import ModelError, UsageError
from arachne.model.values import Array
from arachne.tasks import Detection
from arachne.tasks.detection.layout import find_layout
from tests.backends.onnx_detector import make_cell_detector, write_cells
from tests.commands import arachne as run_in

STEPS = "scale=1/255 layout=nchw"
pytestmark = pytest.mark.backend("onnx")


def with_outputs(nodes: Sequence[NodeProto], outputs: Sequence[str], **constants: Array) -> onnx.ModelProto:
    """The detector of cells with further nodes, and other outputs than its own."""
    model = make_cell_detector()
    model.graph.node.extend(nodes)
    del model.graph.output[:]
    model.graph.output.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs)
    model.graph.initializer.extend(numpy_helper.from_array(values, name) for name, values in constants.items())
    return model


def make_apart(scores: str) -> onnx.ModelProto:
    """Boxes `(n, anchors, 4)` and scores `(n, anchors, classes)`, as of RT-DETR."""
    nodes = [
        helper.make_node("Transpose", ["boxes"], ["found"], perm=[0, 2, 1]),
        helper.make_node("Transpose", [scores], ["scores"], perm=[0, 2, 1]),
    ]
    return with_outputs(nodes, ["scores", "found"])


def make_suppressed(*, corners: bool) -> onnx.ModelProto:
    """Non-maximum suppression at the end: over two corners and scores, or behind the whole tensor as of YOLO."""
    nodes = [
        helper.make_node("Transpose", ["boxes"], ["turned"], perm=[0, 2, 1]),
        helper.make_node("Split", ["turned", "halves"], ["centre", "size"], axis=2),
        helper.make_node("Mul", ["size", "half"], ["reach"]),
        helper.make_node("Sub", ["centre", "reach"], ["low"]),
        helper.make_node("Add", ["centre", "reach"], ["high"]),
        helper.make_node("Concat", ["low", "high"], ["corners"], axis=2),
        helper.make_node("Split", ["output0", "parts"], ["unused", "classes"], axis=1),
        helper.make_node(
            "NonMaxSuppression",
            ["corners", "probabilities" if corners else "classes", "most", "overlap", "least"],
            ["kept"],
        ),
        helper.make_node("Cast", ["kept"], ["indices"], to=TensorProto.FLOAT),
    ]
    return with_outputs(
        nodes,
        ["indices"],
        halves=np.array([2, 2]),
        parts=np.array([4, 2]),
        half=np.array(0.5, np.float32),
        most=np.array([10]),
        overlap=np.array([0.5], np.float32),
        least=np.array([0.25], np.float32),
    )


MODELS: dict[str, tuple[Callable[[], onnx.ModelProto], str | None]] = {
    "probabilities": (lambda: make_apart("probabilities"), "found,scores"),
    "logits": (lambda: make_apart("logits"), "scores, found"),
    "suppressed": (lambda: make_suppressed(corners=True), None),
    "suppressed-whole": (lambda: make_suppressed(corners=False), None),
}


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_cells(tmp_path_factory.mktemp("cells") / "pictures", 60, seed=5)


@pytest.mark.parametrize("name", MODELS)
def test_what_is_decided_is_what_one_tensor_decides(pictures: Path, tmp_path: Path, name: str) -> None:
    make, output = MODELS[name]
    onnx.save(make(), tmp_path / "apart.onnx")
    onnx.save(make_cell_detector(), tmp_path / "whole.onnx")
    data = arachne.read_data(pictures, preprocess=STEPS, task=Detection())
    scans = [
        arachne.scan(arachne.load(tmp_path / file, output=named), data, task="detection")
        for file, named in (("whole.onnx", None), ("apart.onnx", output))
    ]
    assert [str(fault) for fault in scans[0].faults] == [str(fault) for fault in scans[1].faults]
    assert scans[0].faults[0].target == "false:red"


def test_a_detector_with_two_outputs_is_repaired_and_its_boxes_stay(pictures: Path, tmp_path: Path) -> None:
    onnx.save(make_apart("logits"), tmp_path / "apart.onnx")
    words = ("--data", pictures, "--task", "detection", "--preprocess", STEPS, "--output", "found,scores")
    search = ("--target", "false:red", "--search", "margin@conv", "-o", "fix")
    done = run_in("repair", "apart.onnx", *words, *search, cwd=tmp_path)
    assert done.code == 0, done.err
    assert "1 layer of 3 may change: those that boxes do not depend on" in done.err
    data = arachne.read_data(pictures, preprocess=STEPS, task=Detection())
    old, new = (
        arachne.load(tmp_path / file, output="found,scores").forward(data.inputs)
        for file in ("apart.onnx", "fix/model.onnx")
    )
    np.testing.assert_array_equal(old[..., :4], new[..., :4])
    assert (old[..., 4:] != new[..., 4:]).any()


def test_names_that_are_no_outputs_are_refused(tmp_path: Path) -> None:
    onnx.save(make_apart("logits"), tmp_path / "apart.onnx")
    with pytest.raises(UsageError, match="no output 'score'; did you mean 'scores'"):
        arachne.load(tmp_path / "apart.onnx", output="found,score")
    with pytest.raises(UsageError, match="two outputs to join"):
        arachne.load(tmp_path / "apart.onnx", output="found,scores,found")
    with pytest.raises(ModelError, match="two outputs, boxes and"):
        find_layout(np.zeros((3, 16, 2), np.float32), 2)


@pytest.mark.backend("torch")
@pytest.mark.parametrize("turned", [False, True])
def test_outputs_of_a_module_are_joined(turned: bool) -> None:
    import torch
    from torch import Tensor, nn

    class Apart(nn.Module):
        """A detector that gives a dict, as those of Hugging Face do."""

        def __init__(self) -> None:
            super().__init__()
            self.box, self.kind = nn.Linear(5, 4), nn.Linear(5, 3)

        def forward(self, x: Tensor) -> dict[str, Tensor]:
            scores = self.kind(x)
            return {"logits": scores.transpose(1, 2) if turned else scores, "pred_boxes": self.box(x)}

    torch.manual_seed(0)
    model = Apart().eval()
    x = np.random.default_rng(0).normal(size=(6, 9, 5)).astype(np.float32)
    backend = arachne.load(model, output="logits,pred_boxes")
    with torch.no_grad():
        answer = model(torch.tensor(x))
    found = backend.forward(x)
    np.testing.assert_allclose(found[..., :4], answer["pred_boxes"].numpy(), rtol=1e-5)
    expected = answer["logits"].numpy()
    np.testing.assert_allclose(found[..., 4:], expected.swapaxes(1, 2) if turned else expected, rtol=1e-5)
    with pytest.raises(UsageError, match="no output 'boxes'"):
        arachne.load(model, output="logits,boxes").forward(x)


def test_forms_of_boxes_and_background_are_told_by_values() -> None:
    rng = np.random.default_rng(0)
    low = rng.uniform(0, 0.5, size=(2, 20, 2))
    boxes = np.concatenate([low, low + 0.1], axis=2)
    scores = rng.dirichlet(np.ones(4), size=(2, 20))
    found = find_layout(np.concatenate([boxes, scores], axis=2), 3)
    assert (found.form, found.background, found.objectness, found.first_class) == ("xyxy", True, False, 5)
    np.testing.assert_array_equal(found.boxes(np.concatenate([boxes, scores], axis=2)), boxes)
    turned = find_layout(np.concatenate([boxes[..., [1, 0, 3, 2]], scores], axis=2), 3, "yxyx")
    np.testing.assert_array_equal(turned.boxes(np.concatenate([boxes[..., [1, 0, 3, 2]], scores], axis=2)), boxes)
    other = find_layout(np.concatenate([boxes, scores[..., 1:]], axis=2), 3)
    assert (other.background, other.objectness) == (False, False)
    with pytest.raises(UsageError, match="boxes are xywh, xyxy, yxyx, got 'ltrb'"):
        Detection(boxes="ltrb")
