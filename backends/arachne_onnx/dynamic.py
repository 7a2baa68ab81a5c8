"""Write dynamically quantised operators (`MatMulInteger`, `ConvInteger`) as float operators on fake-quantised inputs.

onnxruntime's `quantize_dynamic` rounds the inputs of a layer to 256 steps between their smallest and largest value in
the batch, so an input's scores depend on those beside it. Written out, every input has steps of its own: as if it came
alone, which is how scores are computed (`Graph.as_written`, one input at a time).

`DynamicQuantizeLSTM` also rounds its states after every step. Written out as an LSTM of the values that its whole
numbers stand for it does not, so a search sees scores that are near; the verdict has those of the file.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from onnx import NodeProto, TensorProto, helper

from arachne_onnx.graph import Graph, attributes

PLAIN = {"MatMulInteger": "MatMul", "ConvInteger": "Conv"}
LEVELS = 255.0

LSTM, LSTM_INPUTS = "DynamicQuantizeLSTM", 8
"""The recurrent operator, and how many inputs it has in common with `LSTM`; scales and zero points come behind."""


@dataclass(frozen=True)
class _Product:
    """A product of whole numbers up to the node that scales it: the nodes between, and the scale of the weight."""

    rounding: NodeProto
    product: NodeProto
    scaling: NodeProto
    nodes: tuple[NodeProto, ...]
    weight_scale: str


def write_out_dynamic(graph: Graph) -> None:
    """Replace every dynamically quantised layer whose inputs are rounded for such layers alone; others stay."""
    if not any(node.op_type in (*PLAIN, LSTM) for node in graph.nodes):
        return
    written = list(graph.nodes)
    graph.nodes = [new for node in graph.nodes for new in (_plain_lstm(graph, node) or [node])]
    if len(graph.nodes) != len(written):
        graph.as_written = written
    producers, takers = graph.producers(), graph.takers()
    found = [one for node in graph.nodes if (one := _read(graph, node, producers, takers)) is not None]
    inside = {id(node) for one in found for node in one.nodes}
    kept = [
        one
        for one in found
        if all(id(taker) in inside for name in one.rounding.output for taker in takers.get(name, []))
    ]
    if not kept:
        return
    graph.as_written = written
    roundings = {one.rounding.output[0]: one.rounding for one in kept}
    products = {one.scaling.output[0]: one for one in kept}
    gone = {id(node) for one in kept for node in one.nodes}
    nodes: list[NodeProto] = []
    for node in graph.nodes:
        if node.op_type == "DynamicQuantizeLinear" and node.output[0] in roundings:
            nodes += _round_each(graph, node)
        elif node.output and node.output[0] in products:
            nodes += _write(graph, products[node.output[0]])
        elif id(node) not in gone:
            nodes.append(node)
    graph.nodes = nodes


def _plain_lstm(graph: Graph, node: NodeProto) -> list[NodeProto]:
    """Write a quantised LSTM with stored weights as one of their values; nothing where it is no such LSTM."""
    given = [*node.input, *[""] * (LSTM_INPUTS + 4 - len(node.input))]
    weights, steps = given[1:3], given[LSTM_INPUTS : LSTM_INPUTS + 4]
    scales = [graph.constants[name] for name in steps[::2] if name in graph.constants]
    if node.op_type != LSTM or not set(weights) <= graph.constants.keys() or [one.ndim for one in scales] != [1, 1]:
        return []
    if any(graph.constants[name].ndim != 3 for name in weights):
        return []
    stem, made = next(name for name in node.output if name), list[NodeProto]()
    for name, scale, zero in zip(weights, steps[::2], steps[1::2], strict=True):
        values = f"{stem}/arachne/{len(made)}"
        made.append(helper.make_node("DequantizeLinear", [name, scale, *([zero] if zero else [])], [values], axis=0))
        made.append(helper.make_node("Transpose", [values], [f"{values}/rows"], perm=(0, 2, 1)))
    taken = [given[0], made[1].output[0], made[3].output[0], *given[3:LSTM_INPUTS]]
    plain = helper.make_node("LSTM", taken, list(node.output), name=node.name)
    plain.attribute.extend(node.attribute)
    return [*made, plain]


def _read(
    graph: Graph, node: NodeProto, producers: dict[str, NodeProto], takers: dict[str, list[NodeProto]]
) -> _Product | None:
    """Follow a product of whole numbers to its scale; None if it is not as onnxruntime writes it."""
    if node.op_type not in PLAIN or len(node.input) < 3 or node.input[1] not in graph.constants:
        return None
    rounding = producers.get(node.input[0])
    if rounding is None or rounding.op_type != "DynamicQuantizeLinear" or node.input[2] != rounding.output[2]:
        return None
    cast = _only(takers, node.output[0], "Cast")
    scaling = None if cast is None else _only(takers, cast.output[0], "Mul")
    if cast is None or scaling is None or attributes(cast).get("to") != TensorProto.FLOAT:
        return None
    scale = producers.get(next((name for name in scaling.input if name != cast.output[0]), ""))
    if scale is None or scale.op_type != "Mul" or rounding.output[1] not in scale.input:
        return None
    weight_scale = next((name for name in scale.input if name != rounding.output[1]), "")
    steps, weight = graph.constants.get(weight_scale), graph.constants[node.input[1]]
    if steps is None or (steps.size > 1 and not (node.op_type == "MatMulInteger" and weight.ndim == 2)):
        return None
    if len(takers.get(scale.output[0], [])) > 1:
        return None
    return _Product(rounding, node, scaling, (node, cast, scaling, scale), weight_scale)


def _only(takers: dict[str, list[NodeProto]], name: str, operator: str) -> NodeProto | None:
    found = takers.get(name, [])
    return found[0] if len(found) == 1 and found[0].op_type == operator else None


def _round_each(graph: Graph, node: NodeProto) -> list[NodeProto]:
    """Round every input by itself, as `DynamicQuantizeLinear` rounds a batch of one."""
    stem = f"{node.output[0]}/arachne"
    zero, one, levels, axis = (f"{stem}/{name}" for name in ("nothing", "one", "levels", "axis"))
    graph.constants |= {
        zero: np.array(0, np.float32),
        one: np.array(1, np.float32),
        levels: np.array(LEVELS, np.float32),
        axis: np.array([1], np.int64),
    }
    made: list[NodeProto] = []

    def add(operator: str, *inputs: str, name: str = "", **options: int) -> str:
        output = name or f"{stem}/{len(made)}"
        made.append(helper.make_node(operator, list(inputs), [output], **options))
        return output

    rows = add("Flatten", node.input[0], axis=1)
    low = add("Min", add("ReduceMin", rows, axis, keepdims=0), zero)
    high = add("Max", add("ReduceMax", rows, axis, keepdims=0), zero)
    spread = add("Div", add("Sub", high, low), levels)
    scale = add("Where", add("Equal", spread, zero), one, spread, name=node.output[1])
    origin = add("Round", add("Clip", add("Neg", add("Div", low, scale)), zero, levels))
    add("Cast", origin, name=node.output[2], to=TensorProto.UINT8)
    add("QuantizeLinear", node.input[0], scale, node.output[2], name=node.output[0], axis=0)
    return made


def _write(graph: Graph, found: _Product) -> list[NodeProto]:
    """Multiply the values that the whole numbers stand for."""
    node, output = found.product, found.scaling.output[0]
    values, weights = f"{output}/arachne/values", f"{output}/arachne/weights"
    zero = [node.input[3]] if len(node.input) > 3 and node.input[3] else []
    made = helper.make_node(PLAIN[node.op_type], [values, weights], [output], name=node.name)
    made.attribute.extend(node.attribute)
    return [
        helper.make_node("DequantizeLinear", [node.input[0], *found.rounding.output[1:]], [values], axis=0),
        helper.make_node("DequantizeLinear", [node.input[1], found.weight_scale, *zero], [weights], axis=1),
        made,
    ]
