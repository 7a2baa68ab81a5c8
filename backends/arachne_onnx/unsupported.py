"""Find the weights that cannot be repaired, and why: only layers that gradients reach can be."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from onnx import NodeProto, TensorProto

from arachne_onnx.graph import Graph, attributes, reads, subgraphs
from arachne_onnx.layers import KINDS, Layer
from arachne_onnx.reader import MOVERS
from arachne_onnx.rules import FLAT, blocks
from arachne_onnx.rules.tape import key
from arachne_onnx.surgery import RAW_ELEMENTS, TensorLocation

INTEGERS = {TensorProto.INT8: "int8", TensorProto.UINT8: "uint8"}
"""Element types of quantised weights that are repaired where their scales are known."""

UNREAD = {
    number: name.lower()
    for name, number in TensorProto.DataType.items()
    if name.startswith(("INT2", "UINT2", "INT4", "UINT4", "INT16", "UINT16", "FLOAT4", "FLOAT8"))
}
"""Element types of quantised weights that no patch holds."""

SETTINGS = {"BatchNormalization": 3, "QuantizeLinear": 1, "DequantizeLinear": 1, "Resize": 1, "Upsample": 1, "Clip": 1}
"""Operators that take stored numbers which are no weights, from this input on."""

BRANCH = "it is used in a branch of an 'If' whose condition is only known when the model runs"
STAYS = "its number of steps is only known when the model runs, or large; tell one length with --input-shape x=1x40x8"
FOLD = "export them in its place (torchao: `convert_pt2e` with `fold_quantize=True`), or quantise after the repair"
UNUSED = "the scores do not depend on it"

User = tuple[NodeProto, int, str | None]
"""A node that reads a tensor, as which input, and the kind of node whose body it is in."""


def out_of_reach(graph: Graph, layers: Mapping[str, Layer]) -> tuple[list[str], list[str]]:
    """Return the layers that no gradient reaches, and the operators without a rule that block it."""
    before, operators = before_blocks(graph)
    lost = [
        name
        for name, layer in layers.items()
        if any(location.name in before for location in layer.stored.values())
        or any(use.gradient.name in before for use in layer.uses)
    ]
    return lost, operators if lost else []


def before_blocks(graph: Graph) -> tuple[set[str], list[str]]:
    """The tensors before operators that have no rule, and those operators."""
    before: set[str] = set()
    operators: list[str] = []
    for node in reversed(graph.nodes):
        passes = key(node) not in FLAT and any(_carries(graph, name) for name in node.output if name)
        if not passes:
            continue
        if blocks(node) and any(_carries(graph, name) for name in node.input if name):
            operators.append(key(node))
            before |= reads(node)
        elif not before.isdisjoint(node.output):
            before |= reads(node)
    return before, sorted(set(operators))


def _carries(graph: Graph, name: str) -> bool:
    kind = graph.type_of(name)
    return kind is None or kind.is_float


def unreached_parameters(
    graph: Graph,
    locations: Mapping[str, TensorLocation],
    layers: Mapping[str, Layer],
    lost: Sequence[str],
    operators: Sequence[str],
) -> dict[str, str]:
    """The reason for every stored weight that cannot be repaired; single numbers, settings and statistics are none.

    Args:
        graph: The forward graph, up to the scores.
        locations: The stored tensors.
        layers: All layers that were found.
        lost: The layers that no gradient reaches.
        operators: The operators without a rule that block the gradients.
    """
    reached = {location.name: name for name, layer in layers.items() for location in layer.stored.values()}
    users: dict[str, User] = {}
    _enter_users(graph.nodes, None, users)
    reasons = {}
    for name, location in locations.items():
        if math.prod(location.shape) < 2:
            continue
        if name in reached:
            if reached[name] in lost:
                reasons[name] = f"no gradient passes {', '.join(operators)} behind its layer"
        elif location.element in (*RAW_ELEMENTS, *INTEGERS, *UNREAD):
            reason = _reason(location, _user(users, name), users.get(name))
            if reason is not None:
                reasons[name] = reason
    return reasons


def _reason(location: TensorLocation, user: User | None, first: User | None) -> str | None:
    """Say why a weight is no layer's, by the node that uses it and the first that reads it."""
    if user is None or first is None:
        return UNUSED if location.element in RAW_ELEMENTS else None
    node, index, body = user
    if index >= SETTINGS.get(node.op_type, index + 1):
        return None
    if first[0].op_type == "QuantizeLinear":
        return f"it is a float that the graph rounds to whole numbers; {FOLD}"
    if location.element in UNREAD:
        return f"it is stored as {UNREAD[location.element]}, which no patch holds; quantise after the repair"
    if location.element in INTEGERS:
        how = "without a scale of its own in the file"
        if attributes(first[0]).get("block_size"):
            how = "with a scale for each block of numbers, which is not read"
        return f"it is stored as {INTEGERS[location.element]} {how}; quantise after the repair"
    if body == "If":
        return BRANCH
    if body is not None:
        return f"it is used inside the body of a '{body}', and {STAYS}"
    if node.op_type in KINDS:
        return f"it is used by '{node.op_type}' in a way that is no layer Arachne knows"
    return f"it is used by '{node.op_type}', which is no layer Arachne knows"


def _enter_users(nodes: Sequence[NodeProto], body: str | None, users: dict[str, User]) -> None:
    for node in nodes:
        for index, name in enumerate(node.input):
            users.setdefault(name, (node, index, body))
        for inner in subgraphs(node):
            _enter_users(inner.node, node.op_type, users)
            for value in inner.output:
                users.setdefault(value.name, (node, 0, node.op_type))


def _user(users: Mapping[str, User], name: str) -> User | None:
    """Find the node that uses a tensor, behind nodes that only move it."""
    user = users.get(name)
    while user is not None and user[0].op_type in MOVERS and user[1] == 0:
        following = users.get(user[0].output[0])
        if following is None:
            break
        user = following
    return user
