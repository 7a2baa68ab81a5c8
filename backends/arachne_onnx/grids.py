"""Whole numbers that stand for weights: stored tensors behind `DequantizeLinear` with stored scales."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from onnx import NodeProto
from onnx.helper import np_dtype_to_tensor_dtype
from onnx.numpy_helper import to_array

from arachne.model.values import Array
from arachne.weights.storage import IntegerGrid
from arachne_onnx.graph import Graph, attributes

DTYPES = ("int8", "uint8", "int32")
"""The dtypes of quantised weights and biases."""


def grid_of(graph: Graph, node: NodeProto) -> IntegerGrid | None:
    """Return the values that the stored input of a node stands for; None if it dequantises nothing that is stored.

    Scale and zero point broadcast to the stored tensor. Blocks of numbers with a scale each are not read. Symmetric
    int8 weights stay symmetric: TFLite promises its kernels -127 to 127, and files that hold -128 keep it.
    """
    if node.op_type != "DequantizeLinear" or node.input[0] not in graph.constants or attributes(node).get("block_size"):
        return None
    stored, scale = graph.constants[node.input[0]], graph.constants.get(node.input[1])
    if str(stored.dtype) not in DTYPES or scale is None or scale.dtype != np.float32:
        return None
    zero: Array | None = np.zeros(scale.shape, stored.dtype)
    if len(node.input) > 2 and node.input[2]:
        zero = graph.constants.get(node.input[2])
    if zero is None or zero.size != scale.size or not (np.isfinite(scale) & (scale > 0)).all():
        return None
    if scale.size > 1:
        axis = int(attributes(node).get("axis", 1)) % max(1, stored.ndim)
        if scale.ndim != 1 or stored.shape[axis] != len(scale):
            return None
        shape = [-1 if number == axis else 1 for number in range(stored.ndim)]
        scale, zero = scale.reshape(shape), zero.reshape(shape)
    else:
        scale, zero = scale.reshape(()), zero.reshape(())
    limits = np.iinfo(stored.dtype)
    low = int(limits.min)
    if stored.dtype == np.int8 and not zero.any() and (stored > low).all():
        low += 1
    return IntegerGrid(scale, zero, low, int(limits.max), str(stored.dtype))


def write_roundings_plainly(graph: Graph) -> None:
    """Leave out casts of whole numbers to what they are, and store zero points that are computed of a constant shape.

    torch.onnx writes both around the layers of `torch.ao.quantization`.
    """
    made = {
        node.output[0]: node for node in graph.nodes if node.op_type in ("QuantizeLinear", "Cast", "ConstantOfShape")
    }
    replaced = set()
    for node in graph.nodes:
        if node.op_type != "DequantizeLinear":
            continue
        if (cast := made.get(node.input[0])) is not None and _casts_to_itself(graph, made, cast):
            replaced.add(node.input[0])
            node.input[0] = cast.input[0]
        if len(node.input) > 2 and (zero := _computed_zero(graph, made, node)) is not None:
            replaced.add(node.input[2])
            graph.constants[f"{node.input[2]}/stored"] = zero
            node.input[2] = f"{node.input[2]}/stored"
    taken = {name for node in graph.nodes for name in node.input} | {graph.scores}
    graph.nodes = [node for node in graph.nodes if node.output[0] not in replaced or node.output[0] in taken]


def _casts_to_itself(graph: Graph, made: Mapping[str, NodeProto], cast: NodeProto) -> bool:
    rounding = made.get(cast.input[0])
    if cast.op_type != "Cast" or rounding is None or rounding.op_type != "QuantizeLinear" or len(rounding.input) < 3:
        return False
    zero = graph.constants.get(rounding.input[2])
    return zero is not None and np_dtype_to_tensor_dtype(zero.dtype) == attributes(cast)["to"]


def _computed_zero(graph: Graph, made: Mapping[str, NodeProto], node: NodeProto) -> Array | None:
    """Return the zero point of a stored tensor that is filled, and perhaps cast, in the graph."""
    stored, scale = (graph.constants.get(name) for name in node.input[:2])
    filling = made.get(node.input[2])
    if filling is not None and filling.op_type == "Cast":
        filling = made.get(filling.input[0])
    if stored is None or scale is None or filling is None or filling.op_type != "ConstantOfShape":
        return None
    shape, value = graph.constants.get(filling.input[0]), attributes(filling).get("value")
    if shape is None or value is None or shape.tolist() != list(scale.shape):
        return None
    return np.full(scale.shape, to_array(value).item(), stored.dtype)


def find_grids(graph: Graph) -> dict[str, IntegerGrid]:
    """Return the grid of every stored tensor that is dequantised in one way only, by name."""
    takers, grids = graph.takers(), {}
    for name in graph.constants:
        users = takers.get(name, [])
        if users and {node.input[0] for node in users} == {name} and len({tuple(node.input) for node in users}) == 1:
            grid = grid_of(graph, users[0])
            if grid is not None:
                grids[name] = grid
    return grids


def dequantise_weights(graph: Graph) -> None:
    """Replace stored whole numbers by the values they stand for, under the same names, so that gradients reach them."""
    grids = find_grids(graph)
    values: dict[str, str] = {}
    nodes = []
    for node in graph.nodes:
        if node.op_type == "DequantizeLinear" and node.input[0] in grids:
            values[node.output[0]] = node.input[0]
        else:
            nodes.append(node)
    for name, grid in grids.items():
        graph.constants[name] = np.asarray(grid.to_float(graph.constants[name]), np.float32)
    for node in nodes:
        for index, name in enumerate(node.input):
            node.input[index] = values.get(name, name)
    graph.nodes = nodes
