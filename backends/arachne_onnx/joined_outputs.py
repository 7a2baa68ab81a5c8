"""Outputs of detectors as one tensor: boxes and scores that are given apart, or what lies before their suppression."""

from __future__ import annotations

from collections.abc import Mapping

from onnx import NodeProto, helper

from arachne.adapting.outputs import BOX_VALUES, JOINED_BY, unknown_output
from arachne.errors import ModelError, UsageError
from arachne_onnx.graph import Graph

JOINED = "arachne/joined/"
"""Prefix of the names of tensors that join outputs."""

SQUASHING = ("Sigmoid", "Softmax")


def join_outputs(graph: Graph, named: list[str], output: str | None) -> str | None:
    """Add nodes that join outputs, and return the tensor that holds them; None if there is nothing to join.

    `boxes,scores` names two outputs, `(n, anchors, 4)` and `(n, anchors, classes)`. Without a name, a graph with
    non-maximum suppression is read before it.

    Raises:
        UsageError: A name that is no output.
    """
    if output is not None:
        if JOINED_BY not in output or output in named:
            return None
        parts = [part.strip() for part in output.split(JOINED_BY)]
        for part in parts:
            if part not in named:
                raise unknown_output(part, named)
        if len(parts) != 2:
            raise UsageError(f"expected two outputs to join, boxes and scores, got {len(parts)}")
        return _join(graph, parts[0], parts[1])
    suppression = next((node for node in graph.nodes if node.op_type == "NonMaxSuppression"), None)
    if suppression is None:
        return None
    boxes, scores = suppression.input[:2]
    whole = _find_whole(graph, scores)
    return _join(graph, boxes, scores, classes_first=True) if whole is None else whole


def _find_whole(graph: Graph, scores: str) -> str | None:
    """Return the tensor before suppression that holds boxes and classes of every anchor, if there is one."""
    producers = graph.producers()
    seen, row = {scores}, [scores]
    while row:
        node = producers.get(row.pop(0))
        if node is None:
            continue
        if node.op_type == "Concat" and _has_squashed(node, producers):
            return str(node.output[0])
        if node.op_type in (*SQUASHING, "Conv", "MatMul", "Gemm"):
            continue
        for name in node.input:
            if name not in seen:
                seen.add(name)
                row.append(name)
    return None


def _has_squashed(node: NodeProto, producers: Mapping[str, NodeProto]) -> bool:
    made = [producers.get(name) for name in node.input]
    squashed = [one is not None and one.op_type in SQUASHING for one in made]
    return any(squashed) and not all(squashed)


def _join(graph: Graph, first: str, second: str, *, classes_first: bool = False) -> str:
    """Join boxes and scores along their last axis, `(n, anchors, 4 + classes)`."""
    boxes, scores = first, second
    if not classes_first and _size(graph, first, -1) != BOX_VALUES == _size(graph, second, -1):
        boxes, scores = second, first
    boxes = _bring(graph, boxes, "boxes", _size(graph, boxes, -1) != BOX_VALUES == _size(graph, boxes, 1))
    anchors = _size(graph, boxes, 1)
    turned = classes_first or (anchors is not None and _size(graph, scores, 1) != anchors == _size(graph, scores, -1))
    scores = _bring(graph, scores, "scores", turned)
    joined = f"{JOINED}whole"
    graph.nodes.append(helper.make_node("Concat", [boxes, scores], [joined], axis=-1))
    return joined


def _bring(graph: Graph, name: str, what: str, turn: bool) -> str:
    """Return the tensor with anchors before values."""
    kind = graph.type_of(name)
    if kind is not None and kind.rank is not None and kind.rank != 3:
        raise ModelError(f"expected {what} of shape (inputs, anchors, values), got '{name}' with {kind.rank} axes")
    if not turn:
        return name
    turned = f"{JOINED}{what}"
    graph.nodes.append(helper.make_node("Transpose", [name], [turned], perm=[0, 2, 1]))
    return turned


def _size(graph: Graph, name: str, axis: int) -> int | None:
    kind = graph.type_of(name)
    if kind is None or kind.shape is None or len(kind.shape) != 3:
        return None
    size = kind.shape[axis]
    return size if isinstance(size, int) else None
