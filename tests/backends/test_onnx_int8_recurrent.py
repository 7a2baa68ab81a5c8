"""LSTMs that onnxruntime quantised dynamically are repaired in their own whole numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arachne.model.values import Array
from tests.backends.int8_files import digits, own_scores, quantise

pytestmark = pytest.mark.backend("onnx")


@pytest.fixture(scope="module")
def inputs() -> Array:
    return digits()[0]


def recurrent(direction: str) -> Any:
    """An LSTM over the rows of a picture and a dense layer on its last state, with random weights, as a message."""
    from onnx import TensorProto, helper, numpy_helper

    rng, ways = np.random.default_rng(4), 2 if direction == "bidirectional" else 1
    shapes = {"w": (ways, 48, 8), "r": (ways, 48, 12), "b": (ways, 96), "d.weight": (12 * ways, 10), "d.bias": (10,)}
    arrays = {name: rng.normal(size=shape).astype(np.float32) / 3 for name, shape in shapes.items()}
    arrays["rows"] = np.array([-1, 8, 8])
    arrays["flat"] = np.array([-1, 12 * ways])
    nodes = [
        helper.make_node("Reshape", ["x", "rows"], ["pictures"]),
        helper.make_node("Transpose", ["pictures"], ["steps"], perm=[1, 0, 2]),
        helper.make_node("LSTM", ["steps", "w", "r", "b"], ["", "last"], "rnn", hidden_size=12, direction=direction),
        helper.make_node("Transpose", ["last"], ["inputs first"], perm=[1, 0, 2]),
        helper.make_node("Reshape", ["inputs first", "flat"], ["state"]),
        helper.make_node("Gemm", ["state", "d.weight", "d.bias"], ["scores"], "d"),
    ]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", *shape])
        for name, shape in (("x", [64]), ("scores", [10]))
    ]
    tensors = [numpy_helper.from_array(values, name) for name, values in arrays.items()]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_dynamically_quantised_lstm_is_repaired_in_its_own_numbers(
    direction: str, inputs: Array, tmp_path: Path
) -> None:
    import onnx

    import arachne

    rows = inputs[:120].reshape(-1, 64)
    onnx.save(recurrent(direction), tmp_path / "float.onnx")
    path = quantise(tmp_path / "float.onnx", tmp_path / "lstm.onnx", rows, "dynamic")
    assert "DynamicQuantizeLSTM" in {node.op_type for node in onnx.load(path).graph.node}
    backend, plain = arachne.load(path), arachne.load(tmp_path / "float.onnx")
    names = [info.name for info in plain.layers]
    assert [info.name for info in backend.layers] == names
    recurrent_names = [info.name for info in backend.layers if info.kind == "recurrent"]
    assert len(recurrent_names) == (1 if direction == "forward" else 2)
    alone = own_scores(path, rows)
    np.testing.assert_array_equal(backend.forward(rows), alone)
    step = np.ptp(alone) / 255
    assert np.abs(backend.cut(rows, recurrent_names[:1]).scores_with({}) - alone).max() < 2.5 * step
    for name in names:  # the same places as in the float file, in the same order
        for parameter, values in plain.get_weights(name).items():
            found = backend.get_weights(name)[parameter]
            assert np.abs(found - values).max() <= np.abs(values).max() / 120
    labels = np.argsort(alone, axis=1)[:, -2]  # every input is wrong as it is

    def pull(scores: Array, part: slice | Array) -> Array:
        wanted = np.zeros_like(scores)
        wanted[np.arange(len(scores)), labels[part]] = -1
        return wanted

    ours, wanted = (
        np.concatenate([one.ravel() for one in model.weight_gradients(rows, pull).values()])
        for model in (backend, plain)
    )
    assert ours @ wanted / np.linalg.norm(ours) / np.linalg.norm(wanted) > 0.98
    labels[::2] = alone[::2].argmax(axis=1)
    inside = arachne.Contrast(include=tuple(recurrent_names))
    result = arachne.repair(path, (rows, labels), "*:*", localiser=inside, max_break=0.5, seed=0)
    assert result.evidence.held_out.repaired > 0
    result.model.save(tmp_path / "after.onnx")
    stored = [
        {one.name: onnx.numpy_helper.to_array(one) for one in onnx.load(file).graph.initializer}
        for file in (path, tmp_path / "after.onnx")
    ]
    differing = {name for name, values in stored[0].items() if not np.array_equal(values, stored[1][name])}
    assert differing
    assert differing <= {"w_quantized", "r_quantized", "b"}
    arachne.revert(result.patch, tmp_path / "after.onnx", tmp_path / "back.onnx")
    assert (tmp_path / "back.onnx").read_bytes() == path.read_bytes()
