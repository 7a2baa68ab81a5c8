"""Reverse mode over an ONNX graph: the tape that writes the backward nodes, and the table of rules it reads.

A rule gets the tape and one node with the gradients of its outputs, and returns one small function per input; each is
called only when that input's gradient is needed, and returns the name of the tensor that holds it. Most operators have
a gradient for their first input alone: `input_rule` and `function_rules` are for those. The result is an ONNX graph
again: the seed gradient is one of its inputs, and onnxruntime runs it on the device of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, helper

from arachne.model.values import Array
from arachne_onnx.graph import Graph, TensorType, attributes, reads

Thunk = Callable[[], str | None]
Rule = Callable[["Tape", "BackwardStep"], Sequence[Thunk | None]]
InputRule = Callable[["Tape", "BackwardStep"], str]
Slope = Callable[["Tape", str, str, str], str]

RULES: dict[str, Rule] = {}
"""Operator -> rule. Operators of other domains carry theirs: `com.microsoft.Gelu`."""

_FLAT = """
    And ArgMax ArgMin Bernoulli BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Ceil Constant ConstantOfShape
    Equal EyeLike Floor Greater GreaterOrEqual Hardmax IsInf IsNaN Less LessOrEqual Multinomial NonMaxSuppression
    NonZero Not OneHot Or RandomNormal RandomNormalLike RandomUniform RandomUniformLike Range Round Shape Sign Size
    StringNormalizer Unique Xor
"""
FLAT = frozenset(_FLAT.split())
"""Operators whose derivative is zero wherever it exists: a gradient ends there and nothing is missing."""

STRAIGHT_THROUGH = frozenset({"Sign", "Round", "Floor", "Ceil"})
"""Steps whose gradient may be passed on as if they were the identity, on request."""


class UnknownShapeError(Exception):
    """A rule needs a shape that static inference did not find; a run of the model provides it."""


def rule(*operators: str) -> Callable[[Rule], Rule]:
    """Register a rule for these operators."""

    def enter(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(operators, function))
        return function

    return enter


def input_rule(*operators: str) -> Callable[[InputRule], InputRule]:
    """Register a function that gives the gradient of the first input; the others of these operators have none."""

    def enter(function: InputRule) -> InputRule:
        rule(*operators)(lambda tape, step: [partial(function, tape, step)])
        return function

    return enter


def function_rules(slopes: Mapping[str, Slope]) -> None:
    """Register functions `y` of one variable `x`: each gives the gradient of `x` from `g`, the gradient of `y`."""
    for operator, slope in slopes.items():
        input_rule(operator)(partial(_apply_slope, slope))


def _apply_slope(slope: Slope, tape: Tape, step: BackwardStep) -> str:
    return slope(tape, step.gradient, step.inputs[0], step.outputs[0])


def key(node: NodeProto) -> str:
    """Return the key of a node's rule."""
    return f"{node.domain}.{node.op_type}" if node.domain not in ("", "ai.onnx") else str(node.op_type)


def blocks(node: NodeProto) -> bool:
    """Whether a node has no rule, so that no gradient passes it."""
    return key(node) not in RULES and key(node) not in FLAT


class BackwardStep:
    """One node in the backward pass: its inputs, outputs, attributes and the gradients of its outputs."""

    def __init__(self, node: NodeProto, gradients: Sequence[str | None]) -> None:
        self.node = node
        self.inputs = list(node.input)
        self.outputs = list(node.output)
        self.attributes = attributes(node)
        self.gradients = gradients

    @property
    def gradient(self) -> str:
        """The gradient of the first output, for the many operators that have one."""
        if self.gradients[0] is None:
            raise UnknownShapeError(f"{self.node.op_type}: no gradient for the first output")
        return self.gradients[0]

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute, or its default."""
        return self.attributes.get(name, default)

    def input(self, index: int) -> str | None:
        """An optional input, None where it was left out."""
        return self.inputs[index] if index < len(self.inputs) and self.inputs[index] else None


class Tape:
    """Collects backward nodes and their constants over one graph."""

    def __init__(
        self, graph: Graph, *, straight_through: Collection[str] = (), names: Iterable[int] | None = None
    ) -> None:
        self.graph = graph
        self.nodes: list[NodeProto] = []
        self.constants: dict[str, Array] = {}
        self.straight_through = frozenset(straight_through)
        self.names = iter(count() if names is None else names)
        self.active: set[str] = set()
        self._pool: dict[tuple[Any, ...], str] = {}

    def name(self) -> str:
        """A name that no other tensor has."""
        return f"arachne.grad.{next(self.names)}"

    def op(self, operator: str, *inputs: str | None, outputs: int = 1, domain: str = "", **options: Any) -> str:
        """Append one node and return the name of its (first) output."""
        return self.ops(operator, *inputs, outputs=outputs, domain=domain, **options)[0]

    def ops(self, operator: str, *inputs: str | None, outputs: int, domain: str = "", **options: Any) -> list[str]:
        """Append one node and return the names of all its outputs."""
        names = [self.name() for _ in range(outputs)]
        given = [name or "" for name in inputs]
        chosen = {option: value for option, value in options.items() if value is not None}
        self.nodes.append(helper.make_node(operator, given, names, domain=domain, **chosen))
        return names

    def constant(self, value: Any, dtype: Any = np.int64) -> str:
        """A constant tensor; equal ones are shared."""
        array = np.asarray(value, dtype=dtype)
        identity = (array.dtype.str, array.shape, array.tobytes())
        if identity not in self._pool:
            self._pool[identity] = self.name()
            self.constants[self._pool[identity]] = array
        return self._pool[identity]

    def number(self, value: float, like: str) -> str:
        """A scalar of the element type of another tensor."""
        kind = self.graph.type_of(like)
        dtype = np.float32 if kind is None else helper.tensor_dtype_to_np_dtype(kind.element)
        return self.constant(value, dtype)

    def zeros(self, like: str, source: str | None = None) -> str:
        """Zeros of the shape of one tensor and the element type of the same or another."""
        return self.op("Expand", self.number(0, source or like), self.op("Shape", like))

    def scale(self, name: str, factor: float, like: str) -> str:
        """Multiply a tensor by a number."""
        return name if factor == 1.0 else self.op("Mul", name, self.number(factor, like))

    def type_of(self, name: str) -> TensorType | None:
        """Return the type of a forward tensor, if known."""
        return self.graph.type_of(name)

    def rank(self, name: str) -> int:
        """Number of axes of a forward tensor."""
        kind = self.graph.type_of(name)
        if kind is None or kind.rank is None:
            raise UnknownShapeError(name)
        return kind.rank

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the sizes of a forward tensor; unknown ones, such as the batch, are -1."""
        kind = self.graph.type_of(name)
        if kind is None or kind.shape is None:
            raise UnknownShapeError(name)
        return tuple(size if isinstance(size, int) else -1 for size in kind.shape)

    def value(self, name: str | None) -> Array | None:
        """Return a constant's value; None for computed tensors."""
        return self.graph.constants.get(name) if name else None

    def sum_to(self, gradient: str, target: str, full: str) -> str:
        """Undo broadcasting: sum a gradient of the shape of `full` down to the shape of `target`."""
        kind, whole = self.graph.type_of(target), self.graph.type_of(full)
        if kind is None or whole is None or kind.shape is None or whole.shape is None:
            return self.sum_dynamic(gradient, target)
        lead = len(whole.shape) - len(kind.shape)
        axes = list(range(lead))
        for axis, (small, large) in enumerate(zip(kind.shape, whole.shape[lead:], strict=True)):
            if small == 1:
                if large != 1:
                    axes.append(axis + lead)
            elif not (isinstance(small, int) or (small is not None and small == large)):
                return self.sum_dynamic(gradient, target)  # a size known only when it runs may turn out to be 1
        if not axes:
            return gradient
        summed = self.op("ReduceSum", gradient, self.constant(axes), keepdims=int(lead == 0))
        if lead and len(axes) > lead:
            return self.op("Reshape", summed, self.op("Shape", target))
        return summed

    def sum_dynamic(self, gradient: str, target: str) -> str:
        """Undo broadcasting for shapes that are known only at run time."""
        small, large = self.op("Shape", target), self.op("Shape", gradient)
        lead = self.op("Sub", self.op("Size", large), self.op("Size", small))
        pads = self.op("Concat", self.op("Reshape", lead, self.constant([1])), self.constant([0]), axis=0)
        padded = self.op("Pad", small, pads, self.constant(1))
        differs = self.op("Not", self.op("Equal", padded, large))
        axes = self.op(
            "Squeeze", self.op("NonZero", self.op("Cast", differs, to=onnx.TensorProto.INT64)), self.constant([0])
        )
        summed = self.op("ReduceSum", gradient, axes, keepdims=1, noop_with_empty_axes=1)
        return self.op("Reshape", summed, small)

    def positions(self, name: str, *, floating: bool = False) -> str:
        """The flat index of every element, in the tensor's shape."""
        end = self.op("Size", name)
        positions = self.op("Range", self.constant(0), end, self.constant(1))
        if floating:
            positions = self.op("Cast", positions, to=onnx.TensorProto.DOUBLE)
        return self.op("Reshape", positions, self.op("Shape", name))

    def scatter_flat(self, like: str, positions: str, gradient: str) -> str:
        """Zeros of the shape of `like`, with every element of a gradient added at its flat index."""
        line = self.constant([-1])
        empty = self.op("Expand", self.number(0, like), self.op("Reshape", self.op("Size", like), self.constant([1])))
        flat = (self.op("Reshape", positions, line), self.op("Reshape", gradient, line))
        return self.op(
            "Reshape", self.op("ScatterElements", empty, *flat, axis=0, reduction="add"), self.op("Shape", like)
        )

    def backward(self, seeds: Mapping[str, str], wanted: Iterable[str]) -> dict[str, str]:
        """Write the nodes that carry `seeds` (tensor -> gradient) back to the `wanted` tensors.

        Returns:
            The name of the gradient of every wanted tensor that one reaches.
        """
        wanted = set(wanted)
        active = self.active = self._active(wanted)
        parts: dict[str, list[str]] = {tensor: [gradient] for tensor, gradient in seeds.items()}
        for node in reversed(self.graph.nodes):
            gradients = [self._total(parts, output) if output in parts else None for output in node.output]
            if not any(gradients) or active.isdisjoint(reads(node)):
                continue
            for name, gradient in self._rule(node, gradients, active):
                parts.setdefault(name, []).append(gradient)
        return {name: self._total(parts, name) for name in wanted if name in parts}

    def _rule(self, node: NodeProto, gradients: Sequence[str | None], active: set[str]) -> list[tuple[str, str]]:
        if key(node) in self.straight_through and key(node) in STRAIGHT_THROUGH:
            return [(node.input[0], str(gradients[0]))] if gradients[0] else []
        if key(node) not in RULES:
            return []
        step = BackwardStep(node, gradients)
        found = []
        for name, thunk in zip([*node.input, *self._captures(node)], RULES[key(node)](self, step), strict=False):
            if name in active and thunk is not None and (gradient := thunk()) is not None:
                found.append((name, gradient))
        return found

    @staticmethod
    def _captures(node: NodeProto) -> list[str]:
        return sorted(reads(node) - set(node.input))

    def _total(self, parts: dict[str, list[str]], name: str) -> str:
        while len(parts[name]) > 1:
            first, second = parts[name].pop(), parts[name].pop()
            parts[name].append(self.op("Add", second, first))
        return parts[name][0]

    def _active(self, wanted: set[str]) -> set[str]:
        """Every tensor that depends on a wanted one through operators that have a derivative."""
        active = set(wanted)
        for node in self.graph.nodes:
            if active.isdisjoint(reads(node)) or (key(node) in FLAT and key(node) not in self.straight_through):
                continue
            active.update(output for output in node.output if output and self._differentiable(node, output))
        return active

    def _differentiable(self, node: NodeProto, output: str) -> bool:
        kind = self.graph.type_of(output)
        return kind is None or kind.is_float or key(node) in ("QuantizeLinear", "DequantizeLinear")
