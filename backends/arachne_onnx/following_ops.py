"""Names for nodes without weights in `LayerInfo.followed_by`; a node has a name only if that describes it fully."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
from onnx import NodeProto

from arachne_onnx.graph import SCORES, Graph, attributes

Namer = Callable[[Graph, NodeProto], str | None]

ROUNDING = ("QuantizeLinear", "DequantizeLinear")
"""Operators that round to whole numbers and back."""

PASSING = ("Identity", "Dropout")
"""Operators that do nothing."""


def op_name(graph: Graph, node: NodeProto) -> str | None:
    """Name a node: empty for nodes that do nothing, None for nodes without a name."""
    if node.domain not in ("", "ai.onnx"):
        return None
    last = node.op_type == "Cast" and node.output[0].startswith(SCORES)  # scores are handed out in single precision
    if node.op_type in PASSING or last:
        return ""
    name = NAMES.get(node.op_type)
    return name if name is None or isinstance(name, str) else name(graph, node)


def _flatten(graph: Graph, node: NodeProto) -> str | None:
    """A flatten keeps the first axis and makes one of all others."""
    before, after = graph.type_of(node.input[0]), graph.type_of(node.output[0])
    if before is None or after is None or before.shape is None or after.shape is None or len(after.shape) != 2:
        return None
    if before.shape[0] is not None and before.shape[0] == after.shape[0]:
        return "flatten"
    sizes = [size for size in before.shape[1:] if isinstance(size, int)]
    return "flatten" if len(sizes) == len(before.shape) - 1 and math.prod(sizes) == after.shape[1] else None


def _elu(graph: Graph, node: NodeProto) -> str | None:
    return "elu" if attributes(node).get("alpha", 1.0) == 1.0 else None


def _gelu(graph: Graph, node: NodeProto) -> str | None:
    return "gelu" if attributes(node).get("approximate", "none") == "none" else None


def _clip(graph: Graph, node: NodeProto) -> str | None:
    limits = [graph.constants.get(name) for name in node.input[1:]]
    return "relu6" if [None if limit is None else limit.tolist() for limit in limits] == [0.0, 6.0] else None


def _round(graph: Graph, node: NodeProto) -> str | None:
    """A step to whole numbers clips at its ends, unless these are computed: if its zero is the least, it is a ReLU."""
    zero = graph.constants.get(node.input[2]) if len(node.input) > 2 else None
    if len(node.input) > 2 and node.input[2] not in graph.constants:
        return "rounded"
    if zero is None or zero.size != 1 or zero.dtype not in (np.int8, np.uint8):
        return None
    return "rounded relu" if zero.item() == np.iinfo(zero.dtype).min else "rounded"


def _pad(graph: Graph, node: NodeProto) -> str | None:
    """Name zeros around positions; other modes and values have no name."""
    if attributes(node).get("mode", b"constant") not in (b"constant", "constant") or len(node.input) > 3:
        return None
    pads, *value = (graph.constants.get(name) for name in node.input[1:] if name)
    if pads is None or any(number is None or number.any() for number in value):
        return None
    sizes = pads.reshape(2, -1)
    return "zero_pad" if (sizes >= 0).all() and not sizes[:, :2].any() else None


NAMES: Mapping[str, str | Namer] = {
    "Relu": "relu",
    "Tanh": "tanh",
    "Sigmoid": "sigmoid",
    "Softplus": "softplus",
    "Elu": _elu,
    "Gelu": _gelu,
    "Clip": _clip,
    "MaxPool": "max_pool",
    "AveragePool": "average_pool",
    "GlobalMaxPool": "global_max_pool",
    "GlobalAveragePool": "global_average_pool",
    "Pad": _pad,
    "QuantizeLinear": _round,
    "DequantizeLinear": "identity",
    **dict.fromkeys(("Flatten", "Reshape", "Squeeze"), _flatten),
}
"""The words of `arachne.testing.networks.FOLLOWER_NAMES` and of the evaluator, by operator."""
