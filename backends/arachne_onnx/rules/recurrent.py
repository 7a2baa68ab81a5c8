"""LSTM, GRU and RNN written out as a Scan of elementary nodes, through which the ordinary rules take the gradient.

All steps' products with the inputs are one matrix product outside; inside are the product with the state and the gates.
The tensors that a layer's activations are read from get fixed names (`Unfolded`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from onnx import NodeProto, TensorProto, ValueInfoProto, helper

from arachne.model.values import Array
from arachne_onnx.graph import Graph, TensorType, attributes, value_info
from arachne_onnx.rules.tape import Tape

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
DEFAULTS = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}
PLAIN = frozenset({"Sigmoid", "Tanh", "Relu", "Softsign", "Softplus", "Elu", "HardSigmoid", "LeakyRelu"})
"""Activations that are operators of the same name, with the same settings."""


@dataclass(frozen=True)
class UnfoldedNames:
    """Names of the tensors of one direction.

    Attributes:
        inputs: `(steps, n, in)`, the inputs of the input weights.
        states: `(steps, n, units)`, the state that enters each step.
        products: `(steps, n, gates * units)`, the inputs' part of the pre-activations; its gradient is theirs.
        gates: `(steps, n, gates * units)`, the pre-activations in ONNX's order of gates.
    """

    inputs: str
    states: str
    products: str
    gates: str


def unfolded_names(node: NodeProto, direction: int) -> UnfoldedNames:
    """Return the names of the tensors that `unfold` makes for one direction."""
    stem = f"{next(name for name in node.output if name)}/arachne/{direction}"
    return UnfoldedNames(node.input[0], f"{stem}/states", f"{stem}/products", f"{stem}/gates")


def can_unfold(node: NodeProto) -> bool:
    """Whether `unfold` supports all settings of the node."""
    options = attributes(node)
    names = options.get("activations") or DEFAULTS[node.op_type]
    plain = all(_text(name) in PLAIN for name in names)
    return plain and not options.get("layout", 0) and not options.get("activation_alpha")


def unfold(graph: Graph, node: NodeProto, names: Iterable[int]) -> tuple[list[NodeProto], dict[str, Array]]:
    """Return nodes, with their constants, that compute the node's outputs."""
    writer = _Writer(graph, node, names)
    directions = [writer.direction(index) for index in range(writer.directions)]
    for position, stacked in enumerate(zip(*directions, strict=True)):
        if position < len(node.output) and node.output[position]:
            axis = 1 if position == 0 else 0
            parts = [writer.tape.op("Unsqueeze", name, writer.tape.constant([axis])) for name in stacked]
            writer.tape.nodes.append(helper.make_node("Concat", parts, [node.output[position]], axis=axis))
    return writer.tape.nodes, writer.tape.constants


class _Writer:
    """Writes one recurrent node out, direction by direction."""

    def __init__(self, graph: Graph, node: NodeProto, names: Iterable[int]) -> None:
        self.tape = Tape(graph, names=names)
        self.node = node
        self.options = attributes(node)
        self.units = int(self.options["hidden_size"])
        self.gates = GATES[node.op_type]
        self.way = self.options.get("direction", "forward")
        self.directions = 2 if self.way == "bidirectional" else 1
        kind = graph.type_of(node.input[1])
        self.element = TensorProto.FLOAT if kind is None else kind.element

    def direction(self, index: int) -> list[str]:
        """One direction; the names of its outputs in the order of the node's: sequence, last state, last cell."""
        tape, here = self.tape, unfolded_names(self.node, index)
        x = self.node.input[0]
        bias = self._bias(index)
        product = tape.op("MatMul", x, tape.op("Transpose", self._part(1, index), perm=[1, 0]))
        sums = [product] + [name for name in bias[:1] if name]
        if self.node.op_type != "GRU" and len(bias) == 2:
            sums.append(bias[1])
        tape.nodes.append(helper.make_node("Sum", sums, [here.products]))
        states = self._starts(index, x)
        outputs = [tape.name() for _ in states]
        sequence = tape.name()
        fed = [here.products]
        if self._input(4):
            fed.append(self._steps(x))
        body = self._body(index, bias, len(states))
        back = int(self.way == "reverse" or index == 1)
        tape.nodes.append(
            helper.make_node(
                "Scan",
                [*states, *fed],
                [*outputs, sequence, here.states, here.gates],
                body=body,
                num_scan_inputs=len(fed),
                scan_input_directions=[back] * len(fed),
                scan_output_directions=[back] * 3,
            )
        )
        return [sequence, *outputs]

    def _body(self, index: int, bias: list[str], states: int) -> object:
        """One step: previous states and this step's products in, next states, output, previous state, gates out."""
        outer, inner = self.tape, Tape(self.tape.graph, names=self.tape.names)
        entering = [outer.name() for _ in range(states)]
        product, number = outer.name(), outer.name()
        recurrence = self._part(2, index)
        step = {"LSTM": self._lstm, "GRU": self._gru, "RNN": self._rnn}[self.node.op_type]
        leaving, gates = step(inner, index, entering, product, recurrence, bias)
        output = leaving[0]
        lengths = self._input(4)
        if lengths:
            running = inner.op("Less", number, inner.op("Cast", lengths, to=TensorProto.INT64))
            running = inner.op("Unsqueeze", running, inner.constant([1]))
            leaving = [inner.op("Where", running, new, old) for new, old in zip(leaving, entering, strict=True)]
            output = inner.op("Where", running, output, inner.number(0, self.node.input[1]))
        results = [*leaving, output, entering[0], gates]
        results = [inner.op("Identity", name) for name in results]
        outer.constants.update(inner.constants)
        state, wide = (TensorType(self.element, ("n", size * self.units)) for size in (1, self.gates))
        inputs = [value_info(name, state) for name in entering] + [value_info(product, wide)]
        if lengths:
            inputs.append(value_info(number, TensorType(TensorProto.INT64, ())))
        return helper.make_graph(
            inner.nodes, "step", inputs, [ValueInfoProto(name=name) for name in results], value_info=self._types(inner)
        )

    def _types(self, inner: Tape) -> list[ValueInfoProto]:
        """Return the types of the body's tensors, so that rules need no shapes at run time."""
        state, wide = (TensorType(self.element, ("n", size * self.units)) for size in (1, self.gates))
        found = []
        for node in inner.nodes:
            if node.op_type in ("Gemm", "Split"):
                kinds = [state] * len(node.output)
                if node.op_type == "Gemm" and node.output[0] in self._wide:
                    kinds = [wide]
                found += [value_info(name, kind) for name, kind in zip(node.output, kinds, strict=True)]
            elif node.op_type in ("Add", "Sum") and node.output[0] in self._wide:
                found.append(value_info(node.output[0], wide))
            elif node.op_type in ("Add", "Mul", "Sub", "Sum", "Clip", *PLAIN):
                found.append(value_info(node.output[0], state))
        return found

    _wide: frozenset[str] = frozenset()

    def _lstm(
        self, inner: Tape, index: int, entering: list[str], product: str, recurrence: str, bias: list[str]
    ) -> tuple[list[str], str]:
        h, c = entering
        moved = inner.op("Gemm", h, recurrence, transB=1)
        gates = inner.op("Add", product, moved)
        self._wide = frozenset({moved, gates})
        i, o, f, g = inner.ops("Split", gates, outputs=4, axis=1, num_outputs=4)
        first, second, third = self._activations(index)
        holes = self._holes(inner, index)
        if holes:
            i = inner.op("Add", i, inner.op("Mul", holes[0], c))
            f = inner.op("Add", f, inner.op("Mul", holes[2], c))
        entry = self._activate(inner, first, i)
        stay = inner.op("Sub", inner.number(1, self.node.input[1]), entry)
        keep = stay if self.options.get("input_forget", 0) else self._activate(inner, first, f)
        fresh = inner.op("Mul", entry, self._activate(inner, second, g))
        cell = inner.op("Add", inner.op("Mul", keep, c), fresh)
        if holes:
            o = inner.op("Add", o, inner.op("Mul", holes[1], cell))
        state = inner.op("Mul", self._activate(inner, first, o), inner.op(third, cell))
        return [state, cell], gates

    def _gru(
        self, inner: Tape, index: int, entering: list[str], product: str, recurrence: str, bias: list[str]
    ) -> tuple[list[str], str]:
        (h,) = entering
        first, second = self._activations(index)
        xz, xr, xn = inner.ops("Split", product, outputs=3, axis=1, num_outputs=3)
        rz, rr, rn = self.tape.ops("Split", recurrence, outputs=3, axis=0, num_outputs=3)
        bz, br, bn = self.tape.ops("Split", bias[1], outputs=3, axis=0, num_outputs=3) if len(bias) == 2 else [None] * 3
        z = inner.op("Add", xz, inner.op("Gemm", h, rz, bz, transB=1))
        r = inner.op("Add", xr, inner.op("Gemm", h, rr, br, transB=1))
        update, reset = self._activate(inner, first, z), self._activate(inner, first, r)
        if self.options.get("linear_before_reset", 0):
            moved = inner.op("Mul", reset, inner.op("Gemm", h, rn, bn, transB=1))
        else:
            moved = inner.op("Gemm", inner.op("Mul", reset, h), rn, bn, transB=1)
        n = inner.op("Add", xn, moved)
        fresh = self._activate(inner, second, n)
        # h' = n + z (h - n), one product fewer than the usual form.
        state = inner.op("Add", fresh, inner.op("Mul", update, inner.op("Sub", h, fresh)))
        return [state], inner.op("Concat", z, r, n, axis=1)

    def _rnn(
        self, inner: Tape, index: int, entering: list[str], product: str, recurrence: str, bias: list[str]
    ) -> tuple[list[str], str]:
        gates = inner.op("Add", product, inner.op("Gemm", entering[0], recurrence, transB=1))
        return [self._activate(inner, self._activations(index)[0], gates)], gates

    def _activate(self, inner: Tape, function: str, name: str) -> str:
        """Apply an activation to a gate, after `clip`; onnxruntime does not clip the cell of an LSTM."""
        bound = float(self.options.get("clip") or 0)
        if bound:
            limits = (inner.number(limit, self.node.input[1]) for limit in (-bound, bound))
            name = inner.op("Clip", name, *limits)
        return inner.op(function, name)

    def _activations(self, index: int) -> list[str]:
        names = [_text(name) for name in self.options.get("activations") or DEFAULTS[self.node.op_type]]
        each = len(DEFAULTS[self.node.op_type])
        return (names * 2 if len(names) == each else names)[index * each : (index + 1) * each]

    def _input(self, index: int) -> str | None:
        return self.node.input[index] if index < len(self.node.input) and self.node.input[index] else None

    def _part(self, index: int, direction: int) -> str:
        """One direction of a stacked weight."""
        name = self.node.input[index]
        return self.tape.op("Gather", name, self.tape.constant(direction), axis=0)

    def _bias(self, direction: int) -> list[str]:
        """The inputs' and the state's bias, each `(gates * units,)`; nothing where there is none."""
        if not self._input(3):
            return []
        return self.tape.ops("Split", self._part(3, direction), outputs=2, axis=0, num_outputs=2)

    def _holes(self, inner: Tape, direction: int) -> list[str]:
        if not self._input(7):
            return []
        return self.tape.ops("Split", self._part(7, direction), outputs=3, axis=0, num_outputs=3)

    def _starts(self, direction: int, x: str) -> list[str]:
        """The state, and for an LSTM the cell, before the first step; zeros unless given."""
        tape, starts = self.tape, []
        for index in (5, 6)[: 2 if self.node.op_type == "LSTM" else 1]:
            if self._input(index):
                starts.append(self._part(index, direction))
            else:
                size = tape.op("Concat", tape.op("Shape", x, start=1, end=2), tape.constant([self.units]), axis=0)
                starts.append(tape.op("Expand", tape.number(0, self.node.input[1]), size))
        return starts

    def _steps(self, x: str) -> str:
        """The number of each step, `(steps,)`."""
        tape = self.tape
        count = tape.op("Squeeze", tape.op("Shape", x, start=0, end=1), tape.constant([0]))
        return tape.op("Range", tape.constant(0), count, tape.constant(1))


def _text(name: object) -> str:
    return name.decode() if isinstance(name, bytes) else str(name)
