"""From nodes to layers: which nodes are layers, what they are called, and how their weights lie.

A layer is a node that multiplies with a stored tensor. `KINDS` tells for each operator how to read one; a new kind of
layer is a new entry there. Weights are found through the nodes exporters put in between (transposes, reshapes, casts),
and what those do is undone, so that the canonical layout is a view of the stored tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper

from arachne.values import Array, Geometry, LayerInfo, ParameterInfo
from arachne_onnx.followers import follower
from arachne_onnx.gradients.recurrent import GATES, unfolded
from arachne_onnx.graph import FLOATS, Graph, attributes
from arachne_onnx.naming import is_packed, layer_names

Move = tuple[str, Any]
"""One step from a stored tensor to its canonical layout: `transpose`, `reshape`, `take`, `rows` or `blocks`."""

GATE_ORDER = {"LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2), "RNN": (0,)}
"""Where the canonical gates (i f g o, r z n) stand in ONNX's order (i o f c, z r h)."""


@dataclass(frozen=True)
class Stored:
    """Where a parameter is stored: a tensor of the model, and the moves from it to the canonical layout."""

    name: str
    moves: tuple[Move, ...] = ()

    @property
    def is_part(self) -> bool:
        """Whether the tensor holds other parameters too: directions of a recurrent layer, projections of attention."""
        return any(kind in ("take", "rows") for kind, _ in self.moves)

    def then(self, *moves: Move) -> Stored:
        """The same tensor, moved on."""
        return Stored(self.name, (*self.moves, *moves))

    def view(self, stored: Array) -> Array:
        """The canonical layout; a view of the stored tensor wherever the moves allow one."""
        for kind, value in self.moves:
            stored = _move(stored, kind, value)
        return stored

    def put(self, stored: Array, values: Array) -> None:
        """Write canonical values into a stored tensor."""
        view = self.view(stored)
        if np.may_share_memory(view, stored):
            view[...] = values
        else:
            stored.reshape(-1)[self.places(stored.shape)] = values

    def places(self, shape: tuple[int, ...]) -> Array:
        """The flat position in the stored tensor of every canonical element."""
        return self.view(np.arange(int(np.prod(shape, dtype=np.int64))).reshape(shape))


@dataclass(frozen=True)
class Signal:
    """A tensor of the graph that carries activations, and how its last axis is read once inputs come first.

    Attributes:
        name: The tensor.
        gates: The canonical order of its gates.
        part: Where the layer's own numbers are, of a tensor that holds those of several.
    """

    name: str
    gates: tuple[int, ...] | None = None
    part: tuple[int, int] | None = None

    def read(self, array: Array) -> Array:
        """The layer's activations with canonical gates, given inputs first."""
        if self.part is not None:
            return array[..., self.part[0] : self.part[1]]
        if self.gates is None or len(self.gates) == 1:
            return array
        blocks = array.reshape(*array.shape[:-1], len(self.gates), -1)[..., list(self.gates), :]
        return blocks.reshape(array.shape)


@dataclass(frozen=True)
class Use:
    """One node that uses a layer.

    Attributes:
        node: The node.
        entering: What each weight parameter is multiplied with.
        leaving: What leaves the layer before the non-linearity.
        gradient: The tensor whose gradient is that of `leaving`.
    """

    node: NodeProto
    entering: Mapping[str, Signal]
    leaving: Signal
    gradient: Signal


@dataclass(frozen=True)
class Layer:
    """A repairable layer: what the engine is told, where its parameters are stored, where it is used."""

    info: LayerInfo
    stored: Mapping[str, Stored]
    uses: tuple[Use, ...]


@dataclass(frozen=True)
class Found:
    """A node read as a use of a layer, before names are given."""

    kind: str
    stored: Mapping[str, Stored]
    use: Use
    geometry: Geometry | None = None
    suffix: str = ""


def find_layers(graph: Graph, stored: Collection[str]) -> dict[str, Layer]:
    """The layers of a graph in order of execution; `stored` names the tensors the file keeps."""
    reader = Reader(graph, stored)
    found = [one for node in graph.nodes if node.op_type in KINDS for one in KINDS[node.op_type](reader, node)]
    groups: dict[Any, list[Found]] = {}
    for one in found:
        main = next(iter(one.stored.values()))
        groups.setdefault((main.name, main.moves) if main.is_part else main.name, []).append(one)
    names = layer_names(
        [(group[0].use.node, list(group[0].stored.values()), group[0].suffix) for group in groups.values()]
    )
    return {name: _layer(name, group, reader) for name, group in zip(names, groups.values(), strict=True)}


def _layer(name: str, group: Sequence[Found], reader: Reader) -> Layer:
    first = group[0]
    parameters = {
        parameter: ParameterInfo(
            place.view(reader.graph.constants[place.name]).shape, dtype_name(reader.graph.constants[place.name])
        )
        for parameter, place in first.stored.items()
    }
    alone = len(group) == 1 and first.use.leaving.part is None
    followed = reader.followers(first.use.leaving.name) if alone else None
    info = LayerInfo(name, first.kind, parameters, first.geometry, len(group), followed)
    return Layer(info, first.stored, tuple(one.use for one in group))


def dtype_name(array: Array) -> str:
    """The dtype a tensor is stored in, by NumPy's name."""
    return str(array.dtype)


class Reader:
    """Looks around in a graph on behalf of the kinds of layers."""

    def __init__(self, graph: Graph, stored: Collection[str]) -> None:
        self.graph = graph
        self.stored = frozenset(stored)
        self.producers = graph.producers()
        self.takers: dict[str, list[NodeProto]] = {}
        for node in graph.nodes:
            for name in node.input:
                self.takers.setdefault(name, []).append(node)

    def source(self, name: str) -> Stored | None:
        """The stored float tensor behind a name, through nodes that only move or cast it."""
        if name in self.graph.constants:
            kind = self.graph.type_of(name)
            return Stored(name) if name in self.stored and kind is not None and kind.element in FLOATS else None
        node = self.producers.get(name)
        if node is None or node.op_type not in MOVERS:
            return None
        before = self.source(node.input[0])
        return None if before is None else MOVERS[node.op_type](self, node, before)

    def shape(self, place: Stored) -> tuple[int, ...]:
        """The canonical shape of a stored parameter."""
        return place.view(self.graph.constants[place.name]).shape

    def vector(self, name: str | None, size: int) -> Stored | None:
        """A stored tensor that is one row of `size` numbers, whatever ones stand in its shape."""
        place = self.source(name) if name else None
        if place is None:
            return None
        shape = self.shape(place)
        if int(np.prod(shape)) != size or max(shape, default=1) != size:
            return None
        return place if shape == (size,) else place.then(("reshape", (size,)))

    def added(self, name: str, axes: int) -> tuple[str | None, str]:
        """What the only node behind a tensor adds to its channels, with `axes` behind them, and what comes of it."""
        takers = self.takers.get(name, [])
        if len(takers) != 1 or takers[0].op_type != "Add" or name == self.graph.scores:
            return None, name
        other = next((one for one in takers[0].input if one != name), None)
        place = self.source(other) if other else None
        shape = () if place is None else self.shape(place)
        channels = len(shape) > axes and all(size == 1 for size in shape[len(shape) - axes :])
        return (other, takers[0].output[0]) if place is not None and channels else (None, name)

    def followers(self, name: str) -> tuple[str, ...] | None:
        """What stands between a tensor and the next layer or the scores; None where it forks, joins or has no name."""
        found: list[str] = []
        while name != self.graph.scores:
            takers = self.takers.get(name, [])
            if not takers:
                return None
            node = takers[0]
            layer = node.op_type in KINDS and any(self.source(other) for other in node.input)
            if len(takers) > 1 or sum(other not in self.graph.constants for other in node.input if other) > 1:
                return None
            if layer and node.op_type not in NORMS:
                return tuple(found)
            word = follower(self.graph, node)
            if word is None:
                return None
            found += [word] if word else []
            name = node.output[0]
        return tuple(found)


def _move(array: Array, kind: str, value: Any) -> Array:
    match kind:
        case "transpose":
            return array.transpose(value)
        case "reshape":
            return array.reshape(value)
        case "take":
            return np.asarray(array[value])
        case "rows":
            return array[value[0] : value[1]]
        case "blocks":
            if list(value) == sorted(value):
                return array
            blocks = array.reshape(len(value), -1, *array.shape[1:])[list(value)]
            return blocks.reshape(array.shape)
    raise ValueError(f"no move called '{kind}'")


def _transposed(reader: Reader, node: NodeProto, place: Stored) -> Stored:
    rank = len(reader.shape(place))
    return place.then(("transpose", tuple(attributes(node).get("perm", range(rank)[::-1]))))


def _reshaped(reader: Reader, node: NodeProto, place: Stored) -> Stored | None:
    kind = reader.graph.type_of(node.output[0])
    if kind is None or kind.shape is None or not all(isinstance(size, int) for size in kind.shape):
        return None
    return place.then(("reshape", kind.shape))


MOVERS: Mapping[str, Callable[[Reader, NodeProto, Stored], Stored | None]] = {
    **dict.fromkeys(("Identity", "Cast", "QuantizeLinear", "DequantizeLinear"), lambda reader, node, place: place),
    "Transpose": _transposed,
    **dict.fromkeys(("Reshape", "Squeeze", "Unsqueeze", "Flatten"), _reshaped),
}
"""Nodes through which a weight is recognised."""


def _dense(reader: Reader, node: NodeProto, weight: Stored, bias: str | None, leaving: str) -> Iterator[Found]:
    parameters = {"weight": weight}
    vector = reader.vector(bias, reader.shape(weight)[0])
    if vector is not None:
        parameters["bias"] = vector
    signals = [Signal(leaving)]
    entering, size = {"weight": Signal(node.input[0])}, reader.shape(weight)[0] // 3
    if any(is_packed(place.name) for place in parameters.values()) and reader.shape(weight)[0] == 3 * size:
        signals = [Signal(leaving, part=(start, start + size)) for start in (0, size, 2 * size)]
    for signal, suffix in zip(signals, (".q", ".k", ".v"), strict=False):
        own = {
            name: place if signal.part is None else place.then(("rows", signal.part))
            for name, place in parameters.items()
        }
        use = Use(node, entering, signal, signal)
        yield Found("dense", own, use, suffix=suffix if signal.part else "")


def _gemm(reader: Reader, node: NodeProto) -> Iterator[Found]:
    options, weight = attributes(node), reader.source(node.input[1])
    if weight is None or options.get("transA", 0) or len(reader.shape(weight)) != 2:
        return
    if not options.get("transB", 0):
        weight = weight.then(("transpose", (1, 0)))
    bias = node.input[2] if len(node.input) > 2 and options.get("beta", 1.0) == 1.0 else None
    yield from _dense(reader, node, weight, bias, node.output[0])


def _matmul(reader: Reader, node: NodeProto) -> Iterator[Found]:
    weight = reader.source(node.input[1])
    if weight is None or len(reader.shape(weight)) != 2:
        return
    weight = weight.then(("transpose", (1, 0)))
    bias, leaving = reader.added(node.output[0], 0)
    if reader.vector(bias, reader.shape(weight)[0]) is None:
        bias, leaving = None, node.output[0]
    yield from _dense(reader, node, weight, bias, leaving)


def _conv(reader: Reader, node: NodeProto) -> Iterator[Found]:
    weight = reader.source(node.input[1])
    if weight is None:
        return
    shape, options = reader.shape(weight), attributes(node)
    axes = len(shape) - 2
    pads = options.get("pads") or [0] * 2 * axes
    geometry = Geometry(
        tuple(options.get("strides") or [1] * axes),
        tuple(zip(pads[:axes], pads[axes:], strict=True)),
        tuple(options.get("dilations") or [1] * axes),
        options.get("group", 1),
    )
    transposed = node.op_type == "ConvTranspose"
    outputs = shape[1] * geometry.groups if transposed else shape[0]
    parameters = {"weight": weight}
    name, leaving = (node.input[2], node.output[0]) if len(node.input) > 2 else reader.added(node.output[0], axes)
    bias = reader.vector(name, outputs)
    if bias is not None:
        parameters["bias"] = bias
    signal = Signal(leaving if bias is not None else node.output[0])
    use = Use(node, {"weight": Signal(node.input[0])}, signal, signal)
    yield Found("conv_transpose" if transposed else "conv", parameters, use, geometry)


def _recurrent(reader: Reader, node: NodeProto) -> Iterator[Found]:
    places = [reader.source(name) if name else None for name in [*node.input, ""][1:4]]
    if places[0] is None or places[1] is None:
        return
    options = attributes(node)
    rows, order = GATES[node.op_type] * int(options["hidden_size"]), GATE_ORDER[node.op_type]
    ways = {"forward": [""], "reverse": ["_reverse"]}.get(options.get("direction", "forward"), ["", "_reverse"])
    for direction, suffix in enumerate(ways):
        parameters = {
            name: place.then(("take", direction), ("blocks", order))
            for name, place in zip(("weight_ih", "weight_hh"), places, strict=False)
            if place is not None
        }
        if places[2] is not None:
            for name, start in (("bias_ih", 0), ("bias_hh", rows)):
                cut = ("rows", (start, start + rows))
                parameters[name] = places[2].then(("take", direction), cut, ("blocks", order))
        names = unfolded(node, direction)
        use = Use(
            node,
            {"weight_ih": Signal(names.inputs), "weight_hh": Signal(names.states)},
            Signal(names.gates, order),
            Signal(names.products, order),
        )
        yield Found("recurrent", parameters, use, suffix=suffix)


def _embedding(reader: Reader, node: NodeProto) -> Iterator[Found]:
    table = reader.source(node.input[0])
    fixed = node.input[1] in reader.graph.constants
    if table is None or fixed or attributes(node).get("axis", 0) != 0 or len(reader.shape(table)) != 2:
        return
    signal = Signal(node.output[0])
    yield Found("embedding", {"weight": table}, Use(node, {"weight": Signal(node.input[1])}, signal, signal))


def _norm(reader: Reader, node: NodeProto) -> Iterator[Found]:
    scale = reader.source(node.input[1]) if len(node.input) > 1 else None
    if scale is None:
        return
    parameters = {"scale": scale}
    bias = reader.source(node.input[2]) if len(node.input) > 2 and node.input[2] else None
    if bias is not None:
        parameters["bias"] = bias
    signal = Signal(node.output[0])
    use = Use(node, {"scale": Signal(f"{node.output[0]}/arachne/normal")}, signal, signal)
    yield Found("norm", parameters, use)


def plain_norm(use: Use, graph: Graph) -> tuple[NodeProto, dict[str, Array]]:
    """A norm's node without its scale and shift: what the scale is multiplied with."""
    node = use.node
    copy = NodeProto()
    copy.CopyFrom(node)
    constants: dict[str, Array] = {}
    for index, value in ((1, 1), (2, 0)):
        if index < len(node.input) and node.input[index]:
            kind = graph.type_of(node.input[index])
            shape = [int(size) for size in (kind.shape if kind and kind.shape else ()) if isinstance(size, int)]
            name = f"{use.entering['scale'].name}/{index}"
            element = TensorProto.FLOAT if kind is None else kind.element
            constants[name] = np.full(shape, value, helper.tensor_dtype_to_np_dtype(element))
            copy.input[index] = name
    del copy.output[1:]
    copy.output[0] = use.entering["scale"].name
    copy.name = ""
    return copy, constants


NORMS = ("BatchNormalization", "InstanceNormalization", "LayerNormalization", "GroupNormalization", "RMSNormalization")

KINDS: Mapping[str, Callable[[Reader, NodeProto], Iterator[Found]]] = {
    "Gemm": _gemm,
    "MatMul": _matmul,
    "Conv": _conv,
    "ConvTranspose": _conv,
    **dict.fromkeys(GATES, _recurrent),
    "Gather": _embedding,
    **dict.fromkeys(NORMS, _norm),
}
"""The operators that are layers."""
