"""Odd exports: sizes of -1, as Paddle writes them, and graphs that onnxruntime has fused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import arachne
from arachne.model.values import Array
from tests import commands
from tests.backends.int8_files import convolutional

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


def resizing() -> Any:
    """Two scales of a picture of any size, the small one resized to the large one's height and width, and added."""
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    arrays = {
        "a.weight": rng.normal(size=(4, 1, 3, 3)).astype(np.float32),
        "b.weight": rng.normal(size=(4, 4, 3, 3)).astype(np.float32),
        "c.weight": rng.normal(size=(4, 3)).astype(np.float32),
        "two": np.array([2]),
        "four": np.array([4]),
        "channels": np.array([1, 4]),
    }
    nodes = [
        helper.make_node("Conv", ["images", "a.weight"], ["large"], pads=[1] * 4),
        helper.make_node("Conv", ["large", "b.weight"], ["small"], pads=[1] * 4, strides=[2, 2]),
        helper.make_node("Shape", ["large"], ["all"]),
        helper.make_node("Slice", ["all", "two", "four"], ["sides"]),
        helper.make_node("Concat", ["channels", "sides"], ["sizes"], axis=0),
        helper.make_node("Resize", ["small", "", "", "sizes"], ["grown"], mode="nearest"),
        helper.make_node("Add", ["large", "grown"], ["sum"]),
        helper.make_node("GlobalAveragePool", ["sum"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["flat"]),
        helper.make_node("MatMul", ["flat", "c.weight"], ["scores"]),
    ]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("images", [1, 1, "high", "wide"]), ("scores", [1, 3]))
    ]
    tensors = [numpy_helper.from_array(values, name) for name, values in arrays.items()]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def test_sizes_that_the_command_line_fixes_are_those_of_a_repair(tmp_path: Path) -> None:
    import onnx
    import onnxruntime

    onnx.save(resizing(), tmp_path / "net.onnx")
    pictures = np.random.default_rng(1).normal(size=(200, 1, 16, 16)).astype(np.float32)
    right = arachne.load(tmp_path / "net.onnx", feeds={"images": "1x1x16x16"}).predict(pictures)
    session = onnxruntime.InferenceSession(tmp_path / "net.onnx")  # which takes one picture at a time and no more
    own = np.concatenate([session.run(None, {"images": picture[None]})[0] for picture in pictures])
    np.testing.assert_array_equal(right, own.argmax(axis=1))
    labels = np.where(np.arange(200) % 5 == 0, (right + 1) % 3, right)
    np.savez(tmp_path / "val.npz", x=pictures, y=labels)
    fixed = ["net.onnx", "--input-shape", "images=1x1x16x16"]
    listed = commands.arachne("scan", *fixed, "--layers", cwd=tmp_path)
    assert listed.code == 0, listed.err
    assert "192 of 192 weights are in reach" in listed.out
    options = ["--data", "val.npz", "--target", "*:*", "--max-break", "0.5", "-o", "fix"]
    done = commands.arachne("repair", *fixed, *options, cwd=tmp_path)
    assert done.code in (0, 1), done.err
    assert "seen: " in done.err
    other = commands.arachne("scan", "net.onnx", "--input-shape", "images=1x3x16x16", "--layers", cwd=tmp_path)
    assert other.code == 2
    assert "images" in other.err
