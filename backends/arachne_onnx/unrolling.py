"""Unroll a Loop or Scan step by step, if the number of steps is known and its body holds layers.

A layer inside a body then is a layer that is used once in every step, and is treated like any other. The number of
steps is known if the model declares the length of the sequence or has it as a constant; conditions that only count
steps are evaluated. A Loop whose steps depend on the inputs' values is not unrolled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from onnx import GraphProto, NodeProto, helper

from arachne.model.values import Array
from arachne_onnx.bounds import evaluate_small
from arachne_onnx.graph import Graph, attributes, copy_node, infer_types, subgraphs

MAX_STEPS = 512
MAX_NODES = 8192
"""Limits of unrolling; a longer loop stays as it is."""

LAYERS = ("Gemm", "MatMul", "Conv", "ConvTranspose", "LSTM", "GRU", "RNN", "LayerNormalization", "BatchNormalization")
"""Operators that make a body worth writing out."""

COUNTING = (
    *("Add", "Sub", "Mul", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal", "And", "Or", "Not"),
    *("Cast", "Identity", "Squeeze", "Unsqueeze", "Concat", "Gather", "Reshape", "Min", "Max", "Slice", "Shape"),
)
"""Operators that are evaluated if all their arguments are known and small."""

MAX_NUMBERS = 64
"""The largest tensor that is evaluated, in numbers."""


class StaysError(Exception):
    """A node cannot be written out."""


def unroll(graph: Graph) -> None:
    """Write out every Loop and Scan of a graph that can be, in place."""
    if not any(node.op_type in ("Loop", "Scan") and _holds_layers(node) for node in graph.nodes):
        return
    known = _KnownValues(graph)
    nodes: list[NodeProto] = []
    for node in graph.nodes:
        written = None
        if node.domain == "" and node.op_type in ("Loop", "Scan") and _holds_layers(node):
            writer = _Writer(graph, known, node)
            try:
                written = writer.loop() if node.op_type == "Loop" else writer.scan()
            except StaysError:
                written = None
            else:
                graph.constants.update(writer.constants)
        nodes += [node] if written is None else written
    graph.nodes = nodes
    infer_types(graph)


def _holds_layers(node: NodeProto) -> bool:
    return any(inner.op_type in LAYERS for body in subgraphs(node) for inner in body.node)


class _KnownValues:
    """The values of small whole-number tensors that do not depend on the inputs' values."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._producers = graph.producers()
        self.values: dict[str, Array] = {}

    def value(self, name: str) -> Array | None:
        """The value of a tensor of the graph; None if it is not known."""
        if name in self.values:
            return self.values[name]
        if name in self._graph.constants:
            return self._graph.constants[name]
        node = self._producers.get(name)
        if node is None:
            return None
        found = self._size(node) if node.op_type == "Gather" else None
        if found is None:
            found = self.evaluate(node, [self.value(given) if given else None for given in node.input])
        if found is not None:
            self.values[name] = found
        return found

    def _size(self, node: NodeProto) -> Array | None:
        """Return one length from a shape whose other lengths may be unknown."""
        shape, index = self._producers.get(node.input[0]), self.value(node.input[1])
        if shape is None or shape.op_type != "Shape" or index is None or index.size != 1:
            return None
        kind = self._graph.type_of(shape.input[0])
        sizes = () if kind is None or kind.shape is None else kind.shape[attributes(shape).get("start", 0) :]
        number = int(index.reshape(-1)[0])
        size = sizes[number] if -len(sizes) <= number < len(sizes) else None
        return np.full(index.shape, size, np.int64) if isinstance(size, int) and size > 0 else None

    def evaluate(self, node: NodeProto, given: Sequence[Array | None]) -> Array | None:
        """Evaluate a node on known values; None if the operator is not supported or a value is unknown."""
        if node.op_type == "Shape":
            kind = self._graph.type_of(node.input[0])
            sizes = None if kind is None or kind.shape is None else kind.shape
            if sizes is None or not all(isinstance(size, int) and size > 0 for size in sizes):
                return None
            options = attributes(node)
            return np.array(sizes[options.get("start", 0) : options.get("end", len(sizes))], np.int64)
        present = [value for value in given if value is not None]
        if node.op_type not in COUNTING or len(present) != sum(bool(name) for name in node.input) or not present:
            return None
        if not all(map(_counts, present)):
            return None
        names = [name for name in node.input if name]
        found = evaluate_small([node], dict(zip(names, present, strict=True)), self._graph.opsets).get(node.output[0])
        return found if found is not None and _counts(found) else None


def _counts(value: Array) -> bool:
    """Whether a value may be a number of steps: a few whole numbers, or one that an exporter made real to compare."""
    return value.size <= (MAX_NUMBERS if value.dtype.kind in "iub" else int(value.dtype.kind == "f"))


@dataclass
class _Writer:
    """Writes one Loop or Scan out."""

    graph: Graph
    known: _KnownValues
    node: NodeProto
    nodes: list[NodeProto] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)

    @property
    def body(self) -> GraphProto:
        """The steps' nodes."""
        body = next(subgraphs(self.node))
        if body.initializer or any(True for node in body.node for _ in subgraphs(node)):
            raise StaysError  # a constant of another value than one of the same name outside, or a body in the body
        return body

    @property
    def stem(self) -> str:
        """Prefix of the names of new tensors."""
        return f"{next(name for name in self.node.output if name)}/arachne"

    def loop(self) -> list[NodeProto]:
        """A Loop: a number of steps or a condition, then the states."""
        body = self.body
        most = self.known.value(self.node.input[0]) if self.node.input[0] else np.array(MAX_STEPS + 1)
        going = self.known.value(self.node.input[1]) if self.node.input[1] else np.array(True)
        if most is None or going is None:
            raise StaysError
        states = list(self.node.input[2:])
        inside = [value.name for value in body.input]
        leaving = [value.name for value in body.output]
        rows: list[list[str]] = []
        for step in range(int(most.reshape(-1)[0])):
            if not bool(going.reshape(-1)[0]):
                break
            number = self._constant(f"step/{step}", np.array(step, np.int64))
            yes = self._constant("going", np.array(True))
            rename = self._step(body, step, dict(zip(inside, [number, yes, *states], strict=True)))
            condition = self.known.value(rename(leaving[0]))
            if condition is None:
                raise StaysError
            going = condition
            states = [rename(name) for name in leaving[1 : 1 + len(states)]]
            rows.append([rename(name) for name in leaving[1 + len(states) :]])
        return self._stack_results(states, rows, [(0, 0)] * (len(leaving) - 1 - len(states)))

    def scan(self) -> list[NodeProto]:
        """A Scan: the states, then the sequences it walks over."""
        body, options = self.body, attributes(self.node)
        sequences = int(options["num_scan_inputs"])
        count = len(self.node.input) - sequences
        axes = options.get("scan_input_axes") or [0] * sequences
        ways = options.get("scan_input_directions") or [0] * sequences
        given, states = list(self.node.input[count:]), list(self.node.input[:count])
        steps = self._length(given[0], axes[0])
        inside = [value.name for value in body.input]
        leaving = [value.name for value in body.output]
        rows = []
        for step in range(steps):
            elements = [
                self._element(name, axis, steps - 1 - step if way else step)
                for name, axis, way in zip(given, axes, ways, strict=True)
            ]
            rename = self._step(body, step, dict(zip(inside, [*states, *elements], strict=True)))
            states = [rename(name) for name in leaving[:count]]
            rows.append([rename(name) for name in leaving[count:]])
        results = len(leaving) - count
        stacked = options.get("scan_output_axes") or [0] * results
        turned = options.get("scan_output_directions") or [0] * results
        return self._stack_results(states, rows, list(zip(stacked, turned, strict=True)))

    def _length(self, name: str, axis: int) -> int:
        kind = self.graph.type_of(name)
        size = None if kind is None or kind.shape is None else kind.shape[axis]
        if not isinstance(size, int) or size < 1:
            raise StaysError
        return size

    def _element(self, name: str, axis: int, number: int) -> str:
        result = f"{self.stem}/element/{len(self.nodes)}"
        index = self._constant(f"step/{number}", np.array(number, np.int64))
        self.nodes.append(helper.make_node("Gather", [name, index], [result], axis=axis))
        return result

    def _constant(self, name: str, value: Array) -> str:
        full = f"{self.stem}/{name}"
        self.constants[full] = self.known.values[full] = value
        return full

    def _step(self, body: GraphProto, step: int, names: dict[str, str]) -> Callable[[str], str]:
        """Add the body's nodes once, with its inputs replaced by `names`; return a function that renames its tensors.

        Names that the body does not make are outer tensors, which keep them.
        """
        if step >= MAX_STEPS or len(self.nodes) > MAX_NODES:
            raise StaysError

        def rename(name: str) -> str:
            return names.get(name, name)

        for node in body.node:
            copy = copy_node(node)
            for index, name in enumerate(node.input):
                copy.input[index] = rename(name)
            for index, name in enumerate(node.output):
                if name:
                    names[name] = copy.output[index] = f"{name}/arachne/step/{step}"
            copy.name = f"{node.name}/arachne/step/{step}" if node.name else ""
            value = None
            if len(copy.output) == 1:
                value = self.known.evaluate(copy, [self.known.value(name) if name else None for name in copy.input])
            if value is None:
                self.nodes.append(copy)
            else:
                self.constants[copy.output[0]] = self.known.values[copy.output[0]] = value
        return rename

    def _stack_results(
        self, states: Sequence[str], rows: Sequence[Sequence[str]], stacking: Sequence[tuple[int, int]]
    ) -> list[NodeProto]:
        """Add the node's outputs: the last states, and the stacked results of the steps."""
        if not rows:
            raise StaysError
        results = list(self.node.output)
        for name, result in zip(states, results, strict=False):
            if result:
                self.nodes.append(helper.make_node("Identity", [name], [result]))
        for position, ((axis, turned), result) in enumerate(zip(stacking, results[len(states) :], strict=False)):
            if not result:
                continue
            parts = [row[position] for row in (reversed(rows) if turned else rows)]
            axes = self._constant(f"axis/{axis}", np.array([axis], np.int64))
            lifted = [f"{result}/arachne/part/{number}" for number in range(len(parts))]
            self.nodes += [
                helper.make_node("Unsqueeze", [part, axes], [whole]) for part, whole in zip(parts, lifted, strict=True)
            ]
            self.nodes.append(helper.make_node("Concat", lifted, [result], axis=axis))
        return self.nodes
