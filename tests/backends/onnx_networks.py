"""ONNX models made by hand, and those of network specs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from arachne.model.values import Array
from arachne_onnx.conformance import build, model_of

__all__ = ["build", "build_model", "model_of", "numbers"]


def numbers(*shape: int, seed: int = 0) -> Array:
    """Normally distributed."""
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def build_model(
    nodes: Sequence[NodeProto],
    weights: dict[str, Array],
    *,
    inputs: dict[str, tuple[Any, ...]] | None = None,
    outputs: Sequence[str] = ("y",),
    opset: int = 18,
    element: int = TensorProto.FLOAT,
    ir_version: int = 8,
) -> ModelProto:
    """A model of these nodes; inputs are float `x` `(n, 4)` unless told."""
    given = inputs or {"x": ("n", 4)}
    graph = helper.make_graph(
        list(nodes),
        "made",
        [helper.make_tensor_value_info(name, element, list(shape)) for name, shape in given.items()],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version)
