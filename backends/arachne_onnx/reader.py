"""Read a graph: find the stored tensor behind a name, and the role of a node in a layer.

Weights are found through the nodes that exporters insert (transposes, reshapes, casts); these are undone, so that the
canonical layout is a view of the stored tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import numpy as np
from onnx import NodeProto

from arachne.model.values import Array, Geometry
from arachne_onnx.graph import FLOATS, Graph, attributes
from arachne_onnx.grids import grid_of
from arachne_onnx.parameter_slice import ParameterSlice


@dataclass(frozen=True)
class Signal:
    """A tensor of the graph with activations of a layer.

    Attributes:
        name: The tensor.
        gates: The canonical order of its gates.
        part: The layer's range of the last axis, if the tensor holds several layers.
    """

    name: str
    gates: tuple[int, ...] | None = None
    part: tuple[int, int] | None = None

    def read(self, array: Array) -> Array:
        """Return the layer's activations with canonical gates, from an array with the batch first."""
        if self.part is not None:
            return array[..., self.part[0] : self.part[1]]
        if self.gates is None or len(self.gates) == 1:
            return array
        units = array.shape[-1] // len(self.gates)  # a size of -1 is ambiguous when there are no rows
        blocks = array.reshape(*array.shape[:-1], len(self.gates), units)[..., list(self.gates), :]
        return blocks.reshape(array.shape)


@dataclass(frozen=True)
class LayerUse:
    """One node that uses a layer.

    Attributes:
        node: The node.
        entering: The tensor that each weight parameter is multiplied with.
        leaving: The layer's output before the non-linearity.
        gradient: The tensor whose gradient is that of `leaving`.
    """

    node: NodeProto
    entering: Mapping[str, Signal]
    leaving: Signal
    gradient: Signal


@dataclass(frozen=True)
class FoundLayer:
    """A node recognised as a use of a layer, without a name yet."""

    kind: str
    stored: Mapping[str, ParameterSlice]
    use: LayerUse
    geometry: Geometry | None = None
    suffix: str = ""


class Reader:
    """Answers the questions about a graph that the kinds of layers have."""

    def __init__(self, graph: Graph, stored: Collection[str]) -> None:
        self.graph = graph
        self.stored = frozenset(stored)
        self.producers = graph.producers()
        self.takers = graph.takers()

    def source(self, name: str) -> ParameterSlice | None:
        """Find the stored float tensor behind a name, through nodes that only move or cast it."""
        if name in self.graph.constants:
            kind = self.graph.type_of(name)
            return ParameterSlice(name) if name in self.stored and kind is not None and kind.element in FLOATS else None
        node = self.producers.get(name)
        if node is None or node.op_type not in MOVERS:
            return None
        grid = grid_of(self.graph, node)
        if grid is not None:
            return ParameterSlice(node.input[0], grid=grid) if node.input[0] in self.stored else None
        before = self.source(node.input[0])
        return None if before is None else MOVERS[node.op_type](self, node, before)

    def shape(self, slice_: ParameterSlice) -> tuple[int, ...]:
        """The canonical shape of a stored parameter."""
        return slice_.view(self.graph.constants[slice_.name]).shape

    def vector(self, name: str | None, size: int) -> ParameterSlice | None:
        """Find a stored vector of `size` numbers, with any additional axes of length 1."""
        slice_ = self.source(name) if name else None
        if slice_ is None:
            return None
        shape = self.shape(slice_)
        if int(np.prod(shape)) != size or max(shape, default=1) != size:
            return None
        return slice_ if shape == (size,) else slice_.then(("reshape", (size,)))

    def find_added_bias(self, name: str, axes: int) -> tuple[str | None, str]:
        """Return the bias that the only node behind a tensor adds to its channels, and the result's name.

        Args:
            name: The tensor.
            axes: How many axes follow the channels.
        """
        takers = self.takers.get(name, [])
        if len(takers) != 1 or takers[0].op_type != "Add" or name == self.graph.scores:
            return None, name
        other = next((one for one in takers[0].input if one != name), None)
        slice_ = self.source(other) if other else None
        shape = () if slice_ is None else self.shape(slice_)
        channels = len(shape) > axes and all(size == 1 for size in shape[len(shape) - axes :])
        return (other, takers[0].output[0]) if slice_ is not None and channels else (None, name)


def _transpose(reader: Reader, node: NodeProto, slice_: ParameterSlice) -> ParameterSlice:
    rank = len(reader.shape(slice_))
    return slice_.then(("transpose", tuple(attributes(node).get("perm", range(rank)[::-1]))))


def _reshape(reader: Reader, node: NodeProto, slice_: ParameterSlice) -> ParameterSlice | None:
    kind = reader.graph.type_of(node.output[0])
    if kind is None or kind.shape is None or not all(isinstance(size, int) for size in kind.shape):
        return None
    return slice_.then(("reshape", kind.shape))


MOVERS: Mapping[str, Callable[[Reader, NodeProto, ParameterSlice], ParameterSlice | None]] = {
    **dict.fromkeys(("Identity", "Cast", "QuantizeLinear", "DequantizeLinear"), lambda reader, node, slice_: slice_),
    "Transpose": _transpose,
    **dict.fromkeys(("Reshape", "Squeeze", "Unsqueeze", "Flatten"), _reshape),
}
"""Nodes that only move a weight."""
