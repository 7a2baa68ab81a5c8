"""ONNX models with more weights than a message holds; the limit is lowered here, so that small ones are too large."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from arachne.decisions.losses import cross_entropy
from arachne.errors import ModelError
from arachne.model.values import Array
from arachne_onnx import OnnxBackend, graph, io
from tests.backends.test_onnx_strangers import make_model, value

pytestmark = pytest.mark.backend("onnx")

WIDTH, UNITS = 300, 1000


def rows() -> Array:
    return np.random.default_rng(0).normal(size=(6, WIDTH)).astype(np.float32)


def write(folder: Path, opset: int, *, external: bool = True) -> Path:
    rng = np.random.default_rng(1)
    shapes = {"first": (WIDTH, UNITS), "second": (UNITS, UNITS), "bias": (UNITS,), "last": (UNITS, 3)}
    weights = {name: (rng.normal(size=shape) / 20).astype(np.float32) for name, shape in shapes.items()}
    nodes = [
        helper.make_node("MatMul", ["x", "first"], ["a"]),
        helper.make_node("Tanh", ["a"], ["b"]),
        helper.make_node("Gemm", ["b", "second", "bias"], ["c"]),
        helper.make_node("Tanh", ["c"], ["d"]),
        helper.make_node("MatMul", ["d", "last"], ["y"]),
    ]
    model = make_model(nodes, [value("x", ["n", WIDTH])], [value("y", ["n", 3])], weights)
    model.opset_import[0].version = opset
    folder.mkdir()
    onnx.save(model, str(folder / "net.onnx"), save_as_external_data=external, location="net.data", size_threshold=1024)
    return folder / "net.onnx"


@pytest.fixture
def lowered(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (graph, io):
        monkeypatch.setattr(module, "MAX_MESSAGE_BYTES", 2 * 2**20)


@pytest.mark.parametrize("opset", [13, 18])
def test_a_model_larger_than_a_message_computes_as_a_smaller_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opset: int
) -> None:
    path, x, labels = write(tmp_path / "a", opset), rows(), np.arange(6) % 3
    small = OnnxBackend.load(path)
    for module in (graph, io):
        monkeypatch.setattr(module, "MAX_MESSAGE_BYTES", 2 * 2**20)
    large = OnnxBackend.load(path)
    assert isinstance(large._runner.values["second"], np.memmap)
    assert len(large.native.SerializeToString()) < 2 * 2**20
    np.testing.assert_array_equal(large.forward(x), small.forward(x))
    expected = small.weight_gradients(x, cross_entropy(labels))
    for address, gradient in large.weight_gradients(x, cross_entropy(labels)).items():
        np.testing.assert_array_equal(gradient, expected[address])
    changed = large.get_weights("second")["weight"]
    changed[4, 5] += 1
    found = large.cut(x, ["second"]).scores_with({("second", "weight"): changed})
    large.set_weights("second", "weight", changed)
    np.testing.assert_allclose(large.forward(x), found, atol=1e-5)
    (tmp_path / "b").mkdir()
    large.save(tmp_path / "b" / "net.onnx")
    again = OnnxBackend.load(tmp_path / "b" / "net.onnx")
    np.testing.assert_allclose(again.forward(x), large.forward(x), atol=1e-5)
    before, after = (tmp_path / name / "net.data" for name in ("a", "b"))
    one, other = (np.frombuffer(file.read_bytes(), np.float32) for file in (before, after))
    assert np.count_nonzero(one != other) == 1


@pytest.mark.usefixtures("lowered")
def test_a_model_that_is_large_without_files_beside_it_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a", 18, external=False)
    with pytest.raises(ModelError, match=r"and a message holds 2 GB at most; save it with external data"):
        OnnxBackend.load(path)
