"""The kinds of layers: read each operator that multiplies with a stored tensor as a layer.

`KINDS` in `layers.py` tells for each operator which of these functions reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from onnx import NodeProto, TensorProto, helper

from arachne.model.values import Array, Geometry
from arachne_onnx.graph import Graph, attributes, copy_node
from arachne_onnx.names import is_packed
from arachne_onnx.parameter_slice import ParameterSlice
from arachne_onnx.reader import FoundLayer, LayerUse, Reader, Signal
from arachne_onnx.rules.recurrent import GATES, unfolded_names

Kind = Callable[[Reader, NodeProto], Iterator[FoundLayer]]
"""Reads a node as uses of layers; none where it is no layer of the kind."""

NORMS = ("BatchNormalization", "InstanceNormalization", "LayerNormalization", "GroupNormalization", "RMSNormalization")

GATE_ORDER = {"LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2), "RNN": (0,)}
"""Positions of the canonical gates (i f g o, r z n) in ONNX's order (i o f c, z r h)."""


def _dense(
    reader: Reader, node: NodeProto, weight: ParameterSlice, bias: str | None, leaving: str
) -> Iterator[FoundLayer]:
    parameters = {"weight": weight}
    vector = reader.vector(bias, reader.shape(weight)[0])
    if vector is not None:
        parameters["bias"] = vector
    signals = [Signal(leaving)]
    entering, size = {"weight": Signal(node.input[0])}, reader.shape(weight)[0] // 3
    if any(is_packed(slice_.name) for slice_ in parameters.values()) and reader.shape(weight)[0] == 3 * size:
        signals = [Signal(leaving, part=(start, start + size)) for start in (0, size, 2 * size)]
    for signal, suffix in zip(signals, (".q", ".k", ".v"), strict=False):
        own = {
            name: slice_ if signal.part is None else slice_.then(("rows", signal.part))
            for name, slice_ in parameters.items()
        }
        use = LayerUse(node, entering, signal, signal)
        yield FoundLayer("dense", own, use, suffix=suffix if signal.part else "")


def gemm(reader: Reader, node: NodeProto) -> Iterator[FoundLayer]:
    """A dense layer with its bias in one node, the matrix stored either way round."""
    options, weight = attributes(node), reader.source(node.input[1])
    if weight is None or options.get("transA", 0) or len(reader.shape(weight)) != 2:
        return
    if not options.get("transB", 0):
        weight = weight.then(("transpose", (1, 0)))
    bias = node.input[2] if len(node.input) > 2 and options.get("beta", 1.0) == 1.0 else None
    yield from _dense(reader, node, weight, bias, node.output[0])


def matmul(reader: Reader, node: NodeProto) -> Iterator[FoundLayer]:
    """A product with a stored matrix, and the bias that is added behind it."""
    weight = reader.source(node.input[1])
    if weight is None or len(reader.shape(weight)) != 2:
        return
    weight = weight.then(("transpose", (1, 0)))
    bias, leaving = reader.find_added_bias(node.output[0], 0)
    if reader.vector(bias, reader.shape(weight)[0]) is None:
        bias, leaving = None, node.output[0]
    yield from _dense(reader, node, weight, bias, leaving)


def conv(reader: Reader, node: NodeProto) -> Iterator[FoundLayer]:
    """A convolution, also a transposed one, with a bias in the node or added behind it."""
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
    name, leaving = (
        (node.input[2], node.output[0]) if len(node.input) > 2 else reader.find_added_bias(node.output[0], axes)
    )
    bias = reader.vector(name, outputs)
    if bias is not None:
        parameters["bias"] = bias
    signal = Signal(leaving if bias is not None else node.output[0])
    use = LayerUse(node, {"weight": Signal(node.input[0])}, signal, signal)
    yield FoundLayer("conv_transpose" if transposed else "conv", parameters, use, geometry)


def recurrent(reader: Reader, node: NodeProto) -> Iterator[FoundLayer]:
    """An LSTM, GRU or simple recurrent layer: one layer for each direction."""
    slices = [reader.source(name) if name else None for name in [*node.input, ""][1:4]]
    if slices[0] is None or slices[1] is None:
        return
    options = attributes(node)
    rows, order = GATES[node.op_type] * int(options["hidden_size"]), GATE_ORDER[node.op_type]
    ways = {"forward": [""], "reverse": ["_reverse"]}.get(options.get("direction", "forward"), ["", "_reverse"])
    for direction, suffix in enumerate(ways):
        parameters = {
            name: slice_.then(("take", direction), ("blocks", order))
            for name, slice_ in zip(("weight_ih", "weight_hh"), slices, strict=False)
            if slice_ is not None
        }
        if slices[2] is not None:
            for name, start in (("bias_ih", 0), ("bias_hh", rows)):
                cut = ("rows", (start, start + rows))
                parameters[name] = slices[2].then(("take", direction), cut, ("blocks", order))
        names = unfolded_names(node, direction)
        use = LayerUse(
            node,
            {"weight_ih": Signal(names.inputs), "weight_hh": Signal(names.states)},
            Signal(names.gates, order),
            Signal(names.products, order),
        )
        yield FoundLayer("recurrent", parameters, use, suffix=suffix)


def embedding(reader: Reader, node: NodeProto) -> Iterator[FoundLayer]:
    """Rows of a stored table, looked up by numbers that depend on the inputs."""
    table = reader.source(node.input[0])
    fixed = node.input[1] in reader.graph.constants
    if table is None or fixed or attributes(node).get("axis", 0) != 0 or len(reader.shape(table)) != 2:
        return
    signal = Signal(node.output[0])
    yield FoundLayer("embedding", {"weight": table}, LayerUse(node, {"weight": Signal(node.input[1])}, signal, signal))


def norm(reader: Reader, node: NodeProto) -> Iterator[FoundLayer]:
    """A scale and a bias for each channel, behind a normalisation."""
    scale = reader.source(node.input[1]) if len(node.input) > 1 else None
    if scale is None:
        return
    parameters = {"scale": scale}
    bias = reader.source(node.input[2]) if len(node.input) > 2 and node.input[2] else None
    if bias is not None:
        parameters["bias"] = bias
    signal = Signal(node.output[0])
    use = LayerUse(node, {"scale": Signal(f"{node.output[0]}/arachne/normal")}, signal, signal)
    yield FoundLayer("norm", parameters, use)


def plain_norm(use: LayerUse, graph: Graph) -> tuple[NodeProto, dict[str, Array]]:
    """Return a norm's node without scale and shift, which computes the input of the scale."""
    node = use.node
    copy = copy_node(node)
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
