"""Write inputs and outputs of whole numbers as the values they stand for, as TensorFlow Lite's converters leave them.

tf2onnx keeps the int8 ends of a TFLite file: the first `DequantizeLinear` reads an input, the last `QuantizeLinear` is
an output. The graph then begins with that rounding and ends in values, as Arachne takes and gives them for a TFLite
file; whole numbers of the input's dtype are still taken.
"""

from __future__ import annotations

from onnx import NodeProto, TensorProto, helper

from arachne.model.values import Array
from arachne_onnx.graph import WHOLE, Graph, TensorType

MOVERS = ("Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Identity")
"""Operators that may lie between an input and where its values are read."""


def write_ends_in_floats(graph: Graph, outputs: list[str]) -> None:
    """Round inputs of whole numbers at the beginning, and read outputs of whole numbers at the end."""
    takers, producers = graph.takers(), graph.producers()
    first, last = [], []
    for name, kind in graph.inputs.items():
        reading = _reading(name, takers) if kind.element in WHOLE else None
        if reading is not None and (grid := _grid(graph, reading)) is not None:
            graph.inputs[name] = TensorType(TensorProto.FLOAT, kind.shape)
            graph.whole_inputs[name] = grid
            whole = f"{name}/arachne/whole"
            for node in takers[name]:
                _rename(node.input, name, whole)
            first.append(helper.make_node("QuantizeLinear", [name, *reading.input[1:]], [whole]))
    for name in outputs:
        rounding = producers.get(name)
        if rounding is None or rounding.op_type != "QuantizeLinear" or _grid(graph, rounding) is None:
            continue
        whole = f"{name}/arachne/whole"
        for node in (rounding, *takers.get(name, [])):
            _rename(node.input, name, whole)
            _rename(node.output, name, whole)
        last.append(helper.make_node("DequantizeLinear", [whole, *rounding.input[1:]], [name]))
    graph.nodes = [*first, *graph.nodes, *last]


def _reading(name: str, takers: dict[str, list[NodeProto]]) -> NodeProto | None:
    """Follow an input to the only node that reads its values."""
    while len(found := takers.get(name, [])) == 1:
        if found[0].op_type == "DequantizeLinear":
            return found[0]
        if found[0].op_type not in MOVERS:
            return None
        name = found[0].output[0]
    return None


def _grid(graph: Graph, node: NodeProto) -> tuple[Array, Array] | None:
    """Return the scale and the zero point of a node, if they are stored and one of each."""
    found = [graph.constants[name] for name in node.input[1:] if name in graph.constants]
    if len(found) != 2 or any(one.size != 1 for one in found):
        return None
    return found[0].reshape(()), found[1].reshape(())


def _rename(names: list[str], old: str, new: str) -> None:
    for index, name in enumerate(names):
        if name == old:
            names[index] = new
