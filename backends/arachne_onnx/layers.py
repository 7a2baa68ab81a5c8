"""From nodes to layers: which nodes are layers, their names, and the operations behind them.

A layer is a node that multiplies with a stored tensor. `KINDS` tells for each operator which kind of layer it is; a new
kind of layer is a new entry there and a new function in `kinds.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from arachne.model.values import LayerInfo, ParameterInfo
from arachne_onnx.following_ops import ROUNDING, op_name
from arachne_onnx.graph import Graph
from arachne_onnx.kinds import NORMS, Kind, conv, embedding, gemm, matmul, norm, recurrent
from arachne_onnx.names import layer_names
from arachne_onnx.parameter_slice import ParameterSlice
from arachne_onnx.reader import FoundLayer, LayerUse, Reader
from arachne_onnx.rules.recurrent import GATES

KINDS: Mapping[str, Kind] = {
    "Gemm": gemm,
    "MatMul": matmul,
    "Conv": conv,
    "ConvTranspose": conv,
    **dict.fromkeys(GATES, recurrent),
    "Gather": embedding,
    **dict.fromkeys(NORMS, norm),
}
"""The operators that are layers."""


@dataclass(frozen=True)
class Layer:
    """A repairable layer: its `LayerInfo`, where its parameters are stored, where it is used."""

    info: LayerInfo
    stored: Mapping[str, ParameterSlice]
    uses: tuple[LayerUse, ...]


def find_layers(graph: Graph, stored: Collection[str]) -> dict[str, Layer]:
    """The layers of a graph in order of execution; `stored` names the tensors the file keeps."""
    reader = Reader(graph, stored)
    found = [one for node in graph.nodes if node.op_type in KINDS for one in KINDS[node.op_type](reader, node)]
    groups: dict[Any, list[FoundLayer]] = {}
    for one in found:
        main = next(iter(one.stored.values()))
        groups.setdefault((main.name, main.moves) if main.is_part else main.name, []).append(one)
    names = layer_names(
        [(group[0].use.node, list(group[0].stored.values()), group[0].suffix) for group in groups.values()]
    )
    return {name: _layer(name, group, reader) for name, group in zip(names, groups.values(), strict=True)}


def _layer(name: str, group: Sequence[FoundLayer], reader: Reader) -> Layer:
    first = group[0]
    parameters = {
        parameter: ParameterInfo(reader.shape(slice_), str(stored.dtype), slice_.canonical_grid(stored.shape))
        for parameter, slice_ in first.stored.items()
        for stored in [reader.graph.constants[slice_.name]]
    }
    alone = len(group) == 1 and first.use.leaving.part is None
    followed = _following_ops(reader, first.use.leaving.name) if alone else None
    info = LayerInfo(name, first.kind, parameters, first.geometry, len(group), followed)
    return Layer(info, first.stored, tuple(one.use for one in group))


def _following_ops(reader: Reader, name: str) -> tuple[str, ...] | None:
    """Name the nodes from a tensor to the next layer or the scores; None at a fork, a join or an unknown node."""
    found: list[str] = []
    while name != reader.graph.scores:
        takers = reader.takers.get(name, [])
        if not takers:
            return None
        node = next((one for one in takers if one.op_type == "QuantizeLinear"), takers[0])
        layer = node.op_type in KINDS and any(reader.source(other) for other in node.input)
        takes = node.input
        if node.op_type in ROUNDING:  # what a dynamic quantiser makes its steps of is no input of the next layer
            takes = node.input[:1]
            takers = [one for one in takers if not one.output[0].startswith(f"{node.output[0]}/arachne/")]
        computed = [other for other in takes if other and other not in reader.graph.constants]
        if len(takers) > 1 or sum(reader.source(other) is None for other in computed) > 1:
            return None
        if layer and node.op_type not in NORMS:
            return tuple(found)
        word = op_name(reader.graph, node)
        if word is None:
            return None
        found += [word] if word else []
        name = node.output[0]
    return tuple(found)
