"""A pass as a list of steps that can be run again on any number of inputs.

The model is recorded twice, on batches of two sizes. Steps are torch calls; an argument that is a whole number and grew
with the batch is a multiple of the batch size; one that stayed is a constant. Nothing is traced symbolically, so
whatever torch can run can be recorded, except a pass whose *course* depends on the inputs' values: that is noticed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from torch import Tensor

from arachne_torch.calls import Call, tensors_in

READS = ("item", "tolist", "numpy", "__bool__", "__int__", "__float__", "__index__", "__array__", "equal", "allclose")
"""Calls through which a value leaves torch, so that Python can decide by it."""

Values = dict[int, Any]
"""What stands in each slot."""


class NotRecordableError(Exception):
    """The pass cannot be run again from a recording."""


@dataclass(frozen=True)
class Slot:
    """A tensor of the pass, by number."""

    number: int


@dataclass(frozen=True)
class Multiple:
    """A whole number that is so many times the batch size."""

    factor: Fraction


@dataclass(eq=False)
class Step:
    """One call: what it takes from slots, and the slots of what it gives.

    Attributes:
        takes: The slots among its arguments.
        gives: Slots of its results, with the path to each inside the result.
        follows: Whether it depends on the inputs; one that does not is run anew for every number of rows.
        layer: The layer it uses.
        mutates: Whether it changes a tensor it was given.
        expects: What Python was told, if this call reads a value; the recorded course holds for no other.
        drops: Slots nobody needs behind it.
    """

    func: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    takes: frozenset[int]
    gives: tuple[tuple[int, tuple[int, ...]], ...]
    follows: bool
    layer: str | None
    mutates: bool
    expects: Any = None
    drops: tuple[int, ...] = ()

    def run(self, values: Values, n: int) -> None:
        """Run the call and put its results into their slots."""
        args = [filled(argument, values, n) for argument in self.args]
        result = self.func(*args, **{name: filled(value, values, n) for name, value in self.kwargs.items()})
        for number, path in self.gives:
            values[number] = _at(result, path)
        if self.expects is not None and result != self.expects:
            raise NotRecordableError("its course depends on the inputs")


@dataclass
class Tape:
    """The steps of a pass, and what its slots are.

    Attributes:
        steps: In order of execution.
        inputs: Slots of the model's inputs, by name (`` for a single one).
        named: Slots of the model's parameters, by name.
        constants: Tensors that are the same in every pass.
        grows: For each slot, the axes that grow with the batch, and how many entries each input has there.
        output: The slot the class scores are made from.
    """

    steps: list[Step] = field(default_factory=list)
    inputs: dict[str, int] = field(default_factory=dict)
    named: dict[str, int] = field(default_factory=dict)
    constants: dict[int, Tensor] = field(default_factory=dict)
    grows: dict[int, dict[int, int]] = field(default_factory=dict)
    output: int = -1


@dataclass(frozen=True, eq=False)
class Recording:
    """One recorded pass: its calls, its inputs by name, what its scores are made from, and its batch size."""

    calls: Sequence[Call]
    inputs: Mapping[str, Tensor]
    output: Tensor
    rows: int


def record(small: Recording, large: Recording, parameters: Mapping[str, Tensor]) -> Tape:
    """The tape two recordings agree on.

    Raises:
        NotRecordableError: They do not.
    """
    return _Reader(small, large, parameters).tape


class _Reader:
    """Reads two recordings side by side."""

    def __init__(self, small: Recording, large: Recording, parameters: Mapping[str, Tensor]) -> None:
        self.tape = Tape()
        self._sizes = (small.rows, large.rows)
        self._slots: dict[tuple[int, int], int] = {}
        self._from_inputs: set[int] = set()
        for name in small.inputs:
            self.tape.inputs[name] = self._slot(small.inputs[name], large.inputs[name])
        self._from_inputs.update(self.tape.inputs.values())
        for name, tensor in parameters.items():
            self.tape.named[name] = self._slot(tensor, tensor)
        ours, theirs = ([call for call in one.calls if _matters(call)] for one in (small, large))
        if [call.name for call in ours] != [call.name for call in theirs]:
            raise NotRecordableError("its course depends on the inputs")
        for one, other in zip(ours, theirs, strict=True):
            self._step(one, other)
        output = self._slots.get((id(small.output), id(large.output)))
        if output is None:
            raise NotRecordableError("its scores come from a call that torch does not show")
        self.tape.output = output

    def _step(self, one: Call, other: Call) -> None:
        taken: set[int] = set()
        args = tuple(self._template(a, b, taken) for a, b in zip(one.args, other.args, strict=True))
        kwargs = {name: self._template(value, other.kwargs[name], taken) for name, value in one.kwargs.items()}
        follows = bool(taken & self._from_inputs)
        expects = None
        if one.name in READS:
            if not follows:
                return
            if not isinstance(one.result, (bool, int, float)) or one.result != other.result:
                raise NotRecordableError("its course depends on the inputs")
            expects = one.result
        gives = tuple(
            (self._slot(a, b), path)
            for (path, a), (_, b) in zip(_leaves(one.result), _leaves(other.result), strict=True)
        )
        if follows:
            self._from_inputs.update(number for number, _ in gives)
        layer = None if one.use is None else one.use.layer
        step = Step(one.func, args, kwargs, frozenset(taken), gives, follows, layer, one.mutates, expects)
        self.tape.steps.append(step)

    def _slot(self, one: Tensor, other: Tensor) -> int:
        key = (id(one), id(other))
        if key not in self._slots:
            self._slots[key] = len(self._slots)
            self.tape.grows[self._slots[key]] = self._growing(one, other)
        return self._slots[key]

    def _growing(self, one: Tensor, other: Tensor) -> dict[int, int]:
        if one.ndim != other.ndim:
            raise NotRecordableError("its tensors change their rank with the batch")
        grows = {}
        for axis, (a, b) in enumerate(zip(one.shape, other.shape, strict=True)):
            if a != b:
                factor = self._multiple(a, b).factor
                if factor.denominator != 1:
                    raise NotRecordableError("its tensors do not grow evenly with the batch")
                grows[axis] = int(factor)
        return grows

    def _template(self, one: Any, other: Any, taken: set[int]) -> Any:
        if isinstance(one, Tensor) and isinstance(other, Tensor):
            if (id(one), id(other)) not in self._slots:
                if one is not other:
                    raise NotRecordableError("a tensor comes from a call that torch does not show")
                self.tape.constants[self._slot(one, one)] = one
            taken.add(self._slot(one, other))
            return Slot(self._slot(one, other))
        if type(one) is not type(other):
            raise NotRecordableError("its calls change their arguments with the batch")
        if isinstance(one, (tuple, list)):
            items = [self._template(a, b, taken) for a, b in zip(one, other, strict=True)]
            return items if isinstance(one, list) else tuple(items)
        if isinstance(one, dict):
            return {name: self._template(value, other[name], taken) for name, value in one.items()}
        if isinstance(one, slice):
            return slice(
                *(self._template(getattr(one, at), getattr(other, at), taken) for at in ("start", "stop", "step"))
            )
        if type(one) is int and one != other:
            return self._multiple(one, other)
        if one is other or bool(one == other):
            return one
        raise NotRecordableError("its calls change their arguments with the batch")

    def _multiple(self, one: int, other: int) -> Multiple:
        factor = Fraction(one, self._sizes[0])
        if factor * self._sizes[1] != other:
            raise NotRecordableError("a size does not grow evenly with the batch")
        return Multiple(factor)


def filled(template: Any, values: Values, n: int) -> Any:
    """An argument with its slots and sizes filled in for a batch of `n`."""
    kind = type(template)
    if kind is Slot:
        return values[template.number]
    if kind is Multiple:
        return int(template.factor * n)
    if kind is tuple or kind is list:
        return kind(filled(item, values, n) for item in template)
    if kind is dict:
        return {name: filled(item, values, n) for name, item in template.items()}
    if kind is slice:
        return slice(*(filled(getattr(template, at), values, n) for at in ("start", "stop", "step")))
    return template


def run(steps: Iterable[Step], values: Values, n: int) -> None:
    """Run steps one after the other, letting go of every tensor behind its last use."""
    for step in steps:
        step.run(values, n)
        for number in step.drops:
            values.pop(number, None)


def _matters(call: Call) -> bool:
    return call.mutates or call.name in READS or next(tensors_in(call.result), None) is not None


def _leaves(result: Any, path: tuple[int, ...] = ()) -> list[tuple[tuple[int, ...], Tensor]]:
    if isinstance(result, Tensor):
        return [(path, result)]
    if isinstance(result, (tuple, list)):
        return [leaf for at, item in enumerate(result) for leaf in _leaves(item, (*path, at))]
    return []


def _at(result: Any, path: tuple[int, ...]) -> Any:
    for position in path:
        result = result[position]
    return result
