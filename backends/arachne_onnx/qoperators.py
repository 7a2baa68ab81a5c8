"""Write operators on whole numbers (`QLinearConv`, `QGemm`, ...) as their float operators between (de)quantisations.

onnxruntime fuses the result into the same kernels again, so the scores are those of the file. Layers, gradients and
cuts then know one form of quantised models only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from onnx import NodeProto, helper

from arachne.model.values import Array
from arachne_onnx.graph import Graph, attributes, copy_node

UNARY = {
    "QLinearGlobalAveragePool": "GlobalAveragePool",
    "QLinearAveragePool": "AveragePool",
    "QLinearSigmoid": "Sigmoid",
    "QLinearLeakyRelu": "LeakyRelu",
}
MOVERS = ("Flatten", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "MaxPool")
"""Operators that take whole numbers as they are; between two others they keep onnxruntime from fusing these."""

BINARY = {"QLinearAdd": "Add", "QLinearMul": "Mul"}


class _Writer:
    """Writes the nodes that stand for one operator on whole numbers."""

    def __init__(self, graph: Graph, node: NodeProto) -> None:
        self.graph, self.node = graph, node
        self.inputs = [*node.input, *[""] * 9]
        self.nodes: list[NodeProto] = []

    def dequantise(self, tensor: int, scale: int, zero: int | None, axis: int = 1) -> str:
        """Name the values of an input, given the positions of its scale and zero point among the inputs."""
        names = [self.inputs[tensor], self.inputs[scale], "" if zero is None else self.inputs[zero]]
        return self._add("DequantizeLinear", names, tensor, axis=axis)

    def dequantise_bias(self, tensor: int, scales: Sequence[int]) -> list[str]:
        """Name the values of a bias, whose scale is the product of two others; none where there is no bias."""
        if not self.inputs[tensor]:
            return []
        name = f"{self.inputs[tensor]}/arachne/scale"
        product: Array = np.float32(1) * self._constant(scales[0]) * self._constant(scales[1])
        self.graph.constants[name] = product.reshape(-1) if product.size > 1 else product.reshape(())
        return [self._add("DequantizeLinear", [self.inputs[tensor], name, ""], tensor, axis=0)]

    def operate(self, operator: str, inputs: Sequence[str], scale: int, zero: int, dropped: Sequence[str] = ()) -> None:
        """Add the float operator, and quantise its result where the operator has a scale for it."""
        ends = bool(self.inputs[scale])
        output = f"{self.node.output[0]}/arachne/float" if ends else self.node.output[0]
        made = helper.make_node(operator, list(inputs), [output], name=self.node.name)
        made.attribute.extend(one for one in self.node.attribute if one.name not in dropped)
        self.nodes.append(made)
        if ends:
            names = [output, self.inputs[scale], self.inputs[zero]]
            self.nodes.append(helper.make_node("QuantizeLinear", names, [self.node.output[0]]))

    def _add(self, operator: str, names: list[str], number: int, axis: int) -> str:
        output = f"{self.node.output[0]}/arachne/{number}"
        self.nodes.append(helper.make_node(operator, names if names[-1] else names[:-1], [output], axis=axis))
        return output

    def _constant(self, number: int) -> Array:
        if self.inputs[number] not in self.graph.constants:
            raise NotImplementedError(f"a scale of {self.node.op_type} that is computed")
        return self.graph.constants[self.inputs[number]]


def _conv(write: _Writer) -> None:
    values = [write.dequantise(0, 1, 2), write.dequantise(3, 4, 5, axis=0), *write.dequantise_bias(8, (1, 4))]
    write.operate("Conv", values, 6, 7)


def _matmul(write: _Writer) -> None:
    write.operate("MatMul", [write.dequantise(0, 1, 2), write.dequantise(3, 4, 5, axis=-1)], 6, 7)


def _gemm(write: _Writer) -> None:
    columns = 0 if attributes(write.node).get("transB", 0) else 1
    values = [write.dequantise(0, 1, 2), write.dequantise(3, 4, 5, axis=columns), *write.dequantise_bias(6, (1, 4))]
    write.operate("Gemm", values, 7, 8)


def _unary(write: _Writer) -> None:
    write.operate(UNARY[write.node.op_type], [write.dequantise(0, 1, 2)], 3, 4, dropped=("channels_last",))


def _binary(write: _Writer) -> None:
    write.operate(BINARY[write.node.op_type], [write.dequantise(0, 1, 2), write.dequantise(3, 4, 5)], 6, 7)


WRITERS: dict[str, Callable[[_Writer], None]] = {
    "QLinearConv": _conv,
    "QLinearMatMul": _matmul,
    "QGemm": _gemm,
    **dict.fromkeys(UNARY, _unary),
    **dict.fromkeys(BINARY, _binary),
}
"""Operators on whole numbers that have a float operator of the same meaning."""


def write_out_qoperators(graph: Graph) -> None:
    """Replace every operator on whole numbers that can be written out; others stay."""
    if not any(node.op_type in WRITERS for node in graph.nodes):
        return
    nodes: list[NodeProto] = []
    scales: dict[str, list[str]] = {}
    for node in graph.nodes:
        write = WRITERS.get(node.op_type)
        if node.op_type in MOVERS and node.input[0] in scales:
            nodes += _move(node, scales)
            continue
        if node.op_type == "QuantizeLinear":
            scales[node.output[0]] = list(node.input[1:])
        if write is None or attributes(node).get("channels_last", 0):
            nodes.append(node)
            continue
        writer = _Writer(graph, node)
        try:
            write(writer)
        except NotImplementedError:
            nodes.append(node)
            continue
        nodes += writer.nodes
        scales |= {made.output[0]: list(made.input[1:]) for made in writer.nodes if made.op_type == "QuantizeLinear"}
    graph.nodes = nodes


def _move(node: NodeProto, scales: dict[str, list[str]]) -> list[NodeProto]:
    """Write a node that only moves whole numbers as one that moves their values."""
    scale, moved = scales[node.input[0]], copy_node(node)
    entering, leaving = (f"{node.output[0]}/arachne/{end}" for end in ("entering", "leaving"))
    moved.input[0], moved.output[0] = entering, leaving
    scales[node.output[0]] = scale
    return [
        helper.make_node("DequantizeLinear", [node.input[0], *scale], [entering]),
        moved,
        helper.make_node("QuantizeLinear", [leaving, *scale], [node.output[0]]),
    ]
