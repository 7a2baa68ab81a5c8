"""Odd exports: sizes of -1, as Paddle writes them, and graphs that onnxruntime has fused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arachne.model.values import Array
from tests.backends.test_onnx_int8 import convolutional

pytestmark = pytest.mark.backend("onnx")


@pytest.fixture
def inputs() -> Array:
    return np.random.default_rng(0).normal(size=(12, 1, 8, 8)).astype(np.float32)


def by_onnxruntime(path: Path, inputs: Array) -> Array:
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    scores: Array = session.run(None, {session.get_inputs()[0].name: inputs})[0]
    return scores


def test_size_of_minus_one_is_a_free_one(inputs: Array, tmp_path: Path) -> None:
    import onnx

    from arachne_onnx import OnnxBackend

    model: Any = convolutional(inputs)
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = -1
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    model.graph.output[0].type.tensor_type.shape.dim[0].dim_param = "n"
    onnx.save(model, tmp_path / "plain.onnx")
    scores = OnnxBackend.load(tmp_path / "net.onnx").forward(inputs)
    assert np.array_equal(scores, OnnxBackend.load(tmp_path / "plain.onnx").forward(inputs))


def test_fused_graph_is_read_as_what_it_was_made_of(inputs: Array, tmp_path: Path) -> None:
    import onnx
    import onnxruntime

    from arachne_onnx import OnnxBackend

    onnx.save(convolutional(inputs), tmp_path / "net.onnx")
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(tmp_path / "fused.onnx")
    onnxruntime.InferenceSession(tmp_path / "net.onnx", options, providers=["CPUExecutionProvider"])
    fused = {node.op_type for node in onnx.load(tmp_path / "fused.onnx").graph.node}
    assert {"FusedConv", "FusedGemm"} <= fused
    backend = OnnxBackend.load(tmp_path / "fused.onnx")
    assert [layer.kind for layer in backend.layers] == ["conv", "conv", "dense", "dense"]
    assert np.array_equal(backend.forward(inputs), by_onnxruntime(tmp_path / "fused.onnx", inputs))


def _leaky(values: Array) -> Array:
    return np.maximum(values, values / 2)


@pytest.mark.parametrize(
    ("operator", "options", "wanted"),
    [
        ("FusedGemm", {"activation": "LeakyRelu", "activation_alpha": 0.5, "transB": 1}, _leaky),
        ("FusedGemm", {"activation": "Tanh", "transB": 1}, np.tanh),
        ("FusedMatMul", {"transB": 1, "alpha": 0.5}, lambda z: z / 2),
    ],
    ids=["leaky", "tanh", "product"],
)  # fmt: skip
def test_fused_operator_has_its_meaning(operator: str, options: dict[str, Any], wanted: Any, tmp_path: Path) -> None:
    from onnx import TensorProto, helper, numpy_helper, save

    from arachne_onnx import OnnxBackend

    rng = np.random.default_rng(1)
    weight, x = rng.normal(size=(4, 6)).astype(np.float32), rng.normal(size=(9, 6)).astype(np.float32)
    node = helper.make_node(operator, ["x", "fc.weight"], ["scores"], domain="com.microsoft", **options)
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", size]) for name, size in (("x", 6), ("scores", 4))
    ]
    graph = helper.make_graph([node], "net", ends[:1], ends[1:], [numpy_helper.from_array(weight, "fc.weight")])
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    save(helper.make_model(graph, opset_imports=imports, ir_version=8), tmp_path / "net.onnx")
    backend = OnnxBackend.load(tmp_path / "net.onnx")
    assert [layer.kind for layer in backend.layers] == ["dense"]
    assert np.allclose(backend.forward(x), wanted(x @ weight.T), atol=1e-5)
    assert np.allclose(backend.forward(x), by_onnxruntime(tmp_path / "net.onnx", x), atol=1e-6)
