"""Sizes of an ONNX graph are worked out before it runs: usual ones pass, and those of any batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from arachne.errors import ModelError

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper, numpy_helper  # after the skip

from arachne_onnx import OnnxBackend
from arachne_onnx.bounds import evaluate_small


def test_small_numbers_are_worked_out_and_large_ones_left() -> None:
    nodes = [
        helper.make_node("Mul", ["a", "b"], ["c"]),
        helper.make_node("ConstantOfShape", ["c"], ["d"]),
        helper.make_node("Concat", ["a", "c"], ["e"], axis=0),
        helper.make_node("Loop", ["a", "a"], ["f"]),
        helper.make_node("Add", ["e", "unknown"], ["g"]),
    ]
    found = evaluate_small(nodes, {"a": np.array([3]), "b": np.array([10_000])}, {"": 18})
    assert {name: value.tolist() for name, value in found.items()} == {"c": [30_000], "e": [3, 30_000]}


def model(*nodes: Any, **constants: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> Any:
    """A dense layer, with more nodes that make `more`, which is added to its scores."""
    rng = np.random.default_rng(0)
    weights = {"layer.weight": rng.normal(size=(4, 3)).astype(np.float32), **constants}
    graph = helper.make_graph(
        [
            *nodes,
            helper.make_node("MatMul", ["x", "layer.weight"], ["y"]),
            helper.make_node("Add", ["y", "more"], ["z"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, ["n", 3])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def expanding(rows: int) -> Any:
    """Zeros for as many rows as there are inputs, as exporters write it, times a number."""
    return model(
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "zero"], ["n"]),
        helper.make_node("Mul", ["n", "times"], ["many"]),
        helper.make_node("Div", ["many", "times"], ["again"]),
        helper.make_node("Concat", ["again", "three"], ["wanted"], axis=0),
        helper.make_node("ConstantOfShape", ["many"], ["large"]),
        helper.make_node("ReduceSum", ["large"], ["total"], keepdims=0),
        helper.make_node("Expand", ["total", "wanted"], ["more"]),
        zero=np.array([0]),
        times=np.array([rows]),
        three=np.array([3]),
    )


def test_sizes_made_of_the_batch_pass_where_they_are_small() -> None:
    assert OnnxBackend.load(expanding(10)).forward(np.ones((5, 4), np.float32)).shape == (5, 3)


def test_sizes_made_of_the_batch_are_refused_where_they_are_large() -> None:
    with pytest.raises(ModelError, match="ConstantOfShape"):
        OnnxBackend.load(expanding(10**9))


def test_dropout_that_may_be_turned_on_is_refused() -> None:
    with pytest.raises(ModelError, match="dropout"):
        OnnxBackend.load(
            model(
                helper.make_node("Dropout", ["x", "ratio", "on"], ["dropped"]),
                helper.make_node("ReduceSum", ["dropped"], ["more"], keepdims=0),
                ratio=np.array(0.5, np.float32),
                on=np.array(True),
            )
        )
