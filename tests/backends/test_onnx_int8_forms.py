"""Whole numbers as other tools write them are repaired, or listed with a reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arachne.model.values import Array
from tests.backends.int8_files import digits

pytestmark = pytest.mark.backend("onnx")


@pytest.fixture(scope="module")
def inputs() -> Array:
    return digits()[0]


def dense_over(stored: Any, scale: Array, **options: int) -> Any:
    """A dense layer in floats before one whose weights are dequantised, opset 21, as a message."""
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(3)
    nodes = [
        helper.make_node("Gemm", ["x", "first.weight", "first.bias"], ["h"], transB=1),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("DequantizeLinear", ["last.weight", "scale"], ["w"], **options),
        helper.make_node("Gemm", ["r", "w", "last.bias"], ["scores"], transB=1),
    ]
    arrays = {
        "first.weight": rng.normal(size=(8, 6)).astype(np.float32),
        "first.bias": np.zeros(8, np.float32),
        "last.weight": stored,
        "last.bias": np.zeros(4, np.float32),
        "scale": scale.astype(np.float32),
    }
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", size]) for name, size in (("x", 6), ("scores", 4))
    ]
    tensors = [numpy_helper.from_array(values, name) for name, values in arrays.items()]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize(
    ("dtype", "scales", "options", "reason"),
    [
        ("int4", 4, {"axis": 0}, "stored as int4, which no patch holds"),
        ("uint4", 4, {"axis": 0}, "stored as uint4, which no patch holds"),
        ("int16", 4, {"axis": 0}, "stored as int16, which no patch holds"),
        ("float8_e4m3fn", 4, {"axis": 0}, "stored as float8e4m3fn, which no patch holds"),
        ("float8_e5m2", 4, {"axis": 0}, "stored as float8e5m2, which no patch holds"),
        ("int8", (4, 2), {"axis": 1, "block_size": 4}, "stored as int8 with a scale for each block of numbers"),
    ],
)
def test_weights_in_other_numbers_are_listed_with_a_reason(
    dtype: str, scales: Any, options: dict[str, int], reason: str, tmp_path: Path
) -> None:
    import ml_dtypes
    import onnx

    import arachne

    whole = np.random.default_rng(1).integers(0, 7, (4, 8)).astype(getattr(ml_dtypes, dtype, dtype))
    onnx.save(dense_over(whole, np.full(scales, 0.2), **options), tmp_path / "odd.onnx")
    found = arachne.load(tmp_path / "odd.onnx")
    assert [layer.name for layer in found.layers] == ["first"]
    assert reason in found.unreachable["last.weight"]
    assert "quantise after the repair" in found.unreachable["last.weight"]


def test_floats_that_the_graph_rounds_are_listed_with_what_to_do(tmp_path: Path) -> None:
    import onnx

    import arachne

    model = dense_over(np.random.default_rng(1).normal(size=(4, 8)).astype(np.float32), np.full(4, 0.1), axis=0)
    dequantises = next(node for node in model.graph.node if node.op_type == "DequantizeLinear")
    dequantises.input[0] = "whole"
    dequantises.input.append("zeros")
    arrays = {"zeros": np.zeros(4, np.int8), "low": np.array(-127, np.int8), "high": np.array(127, np.int8)}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(values, name) for name, values in arrays.items())
    rounds = onnx.helper.make_node("QuantizeLinear", ["last.weight", "scale", "zeros"], ["wide"], axis=0)
    model.graph.node.insert(0, rounds)
    model.graph.node.insert(1, onnx.helper.make_node("Clip", ["wide", "low", "high"], ["whole"]))
    onnx.save(model, tmp_path / "unfolded.onnx")
    found = arachne.load(tmp_path / "unfolded.onnx")
    assert [layer.name for layer in found.layers] == ["first"]
    assert "`fold_quantize=True`" in found.unreachable["last.weight"]


def with_whole_ends() -> Any:
    """A model that takes int8 and gives int8, as tf2onnx writes a TFLite file with such ends, as a message."""
    from onnx import TensorProto, helper, numpy_helper

    stored = np.random.default_rng(1).integers(-100, 100, (4, 8)).astype(np.int8)
    graph = (model := dense_over(stored, np.full(4, 0.01), axis=0)).graph
    grids = {"x": (0.02, 3), "scores": (0.05, -7)}
    for name, (scale, zero) in grids.items():
        values = {f"{name}_scale": np.array(scale, np.float32), f"{name}_zero": np.array(zero, np.int8)}
        graph.initializer.extend(numpy_helper.from_array(one, key) for key, one in values.items())
    graph.node[0].input[0], graph.node[-1].output[0] = "values", "before"
    graph.node.insert(0, helper.make_node("DequantizeLinear", ["rows", "x_scale", "x_zero"], ["values"]))
    graph.node.insert(0, helper.make_node("Reshape", ["x", "shape"], ["rows"]))
    graph.node.append(helper.make_node("QuantizeLinear", ["before", "scores_scale", "scores_zero"], ["scores"]))
    graph.initializer.append(numpy_helper.from_array(np.array([-1, 6]), "shape"))
    for end in (graph.input[0], graph.output[0]):
        end.type.tensor_type.elem_type = TensorProto.INT8
    return model


def test_whole_numbers_at_both_ends_are_read_as_values(tmp_path: Path) -> None:
    import onnx
    import onnxruntime

    import arachne

    onnx.save(with_whole_ends(), tmp_path / "net.onnx")
    backend = arachne.load(tmp_path / "net.onnx")
    values = np.random.default_rng(2).normal(size=(50, 6)).astype(np.float32)
    whole = np.clip(np.rint(values / np.float32(0.02)) + 3, -128, 127).astype(np.int8)
    session = onnxruntime.InferenceSession(tmp_path / "net.onnx")
    given = session.run(None, {"x": whole})[0]
    assert given.dtype == np.int8
    wanted = (given.astype(np.float32) + 7) * np.float32(0.05)
    assert len(np.unique(wanted)) > 20
    np.testing.assert_array_equal(backend.forward(values), wanted)
    np.testing.assert_array_equal(backend.forward(whole), wanted)
    assert [layer.name for layer in backend.layers] == ["first", "last"]
    gradients = backend.weight_gradients(values, lambda scores, rows: np.ones_like(scores))
    assert all(np.abs(found).max() > 0 for found in gradients.values())
    backend.set_weights("last", "weight", -backend.get_weights("last")["weight"])
    backend.save(tmp_path / "changed.onnx")
    old, new = (np.frombuffer((tmp_path / name).read_bytes(), np.uint8) for name in ("net.onnx", "changed.onnx"))
    assert 0 < np.count_nonzero(old != new) <= 32
    again = onnxruntime.InferenceSession(tmp_path / "changed.onnx").run(None, {"x": whole})[0]
    np.testing.assert_array_equal(backend.forward(values), (again.astype(np.float32) + 7) * np.float32(0.05))


def test_whole_numbers_at_the_end_that_nothing_explains_are_refused(tmp_path: Path) -> None:
    import onnx

    import arachne
    from arachne.errors import ModelError

    model = with_whole_ends()
    model.graph.node[-1].output[0] = "rounded"
    model.graph.node.append(onnx.helper.make_node("Relu", ["rounded"], ["scores"]))
    onnx.save(model, tmp_path / "net.onnx")
    with pytest.raises(ModelError, match="holds int8: export it with inputs and outputs in floats"):
        arachne.load(tmp_path / "net.onnx")


@pytest.mark.parametrize(("least", "low"), [(-127, -127), (-128, -128)])
def test_symmetric_weights_stay_symmetric_as_kernels_are_promised(least: int, low: int, tmp_path: Path) -> None:
    import onnx

    import arachne

    whole = np.random.default_rng(1).integers(-100, 100, (4, 8)).astype(np.int8)
    whole[2, 3] = least
    onnx.save(dense_over(whole, np.full(4, 0.5), axis=0), tmp_path / "net.onnx")
    backend = arachne.load(tmp_path / "net.onnx")
    backend.set_weights("last", "weight", np.full((4, 8), -1000.0, np.float32))
    backend.save(tmp_path / "changed.onnx")
    stored = {
        one.name: onnx.numpy_helper.to_array(one) for one in onnx.load(tmp_path / "changed.onnx").graph.initializer
    }
    assert stored["last.weight"].min() == stored["last.weight"].max() == low
