"""Which layers gradients reach: all, unless an operator behind them has no rule."""

from __future__ import annotations

from collections.abc import Mapping

from arachne_onnx.gradients import FLAT, blocks
from arachne_onnx.gradients.tape import key
from arachne_onnx.graph import Graph, reads
from arachne_onnx.layers import Layer


def out_of_reach(graph: Graph, layers: Mapping[str, Layer]) -> tuple[list[str], list[str]]:
    """The layers that no gradient reaches, and the operators without a rule that stand in the way."""
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
    lost = [
        name
        for name, layer in layers.items()
        if any(place.name in before for place in layer.stored.values())
        or any(use.gradient.name in before for use in layer.uses)
    ]
    return lost, sorted(set(operators)) if lost else []


def _carries(graph: Graph, name: str) -> bool:
    kind = graph.type_of(name)
    return kind is None or kind.is_float
