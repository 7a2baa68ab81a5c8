"""A pass as a list of steps that can be run again on any number of inputs.

Steps are torch calls. Single steps whose arguments depend on the inputs' values (packing sequences by their lengths)
are marked as *opaque*: they cannot be run again, but their results can be taken from a pass of the model itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from torch import Tensor

from arachne.adapting.batch_axis import BatchAxis

Values = dict[int, Any]
"""The value of each slot."""


class NotRecordableError(Exception):
    """The pass cannot be run again from a recording."""


@dataclass(frozen=True)
class Slot:
    """A tensor of the pass, by number."""

    number: int


@dataclass(frozen=True)
class Multiple:
    """A whole number that is `factor` times the batch size."""

    factor: Fraction


@dataclass(eq=False)
class RecordedCall:
    """One call with its arguments from slots and the slots of its results.

    Attributes:
        takes: The slots among its arguments.
        gives: Slots of its results, with the path to each inside the result.
        follows: Whether it depends on the inputs; one that does not is run anew for every number of rows.
        number: Its place among the calls of the pass.
        layers: The layers it uses.
        continues: Whether its result is the output of its one layer.
        mutates: Whether it changes a tensor it was given.
        expects: The value Python read, if this call hands one out; for any other value the recording does not hold.
        opaque: Why it cannot be run again, if it cannot.
        drops: Slots that no later step needs.
    """

    func: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    takes: frozenset[int]
    gives: tuple[tuple[int, tuple[int, ...]], ...]
    follows: bool
    number: int
    layers: tuple[str, ...]
    continues: bool
    mutates: bool
    expects: Any = None
    opaque: str = ""
    drops: tuple[int, ...] = ()

    def run(self, values: Values, n: int) -> None:
        """Run the call and put its results into their slots."""
        args = [fill_slots(argument, values, n) for argument in self.args]
        result = self.func(*args, **{name: fill_slots(value, values, n) for name, value in self.kwargs.items()})
        for number, path in self.gives:
            values[number] = value_at(result, path)
        if self.expects is not None and result != self.expects:
            raise NotRecordableError("its course depends on the inputs")


@dataclass
class Tape:
    """The steps of a pass, and its slots.

    Attributes:
        steps: In order of execution.
        inputs: Slots of the model's inputs, by name (`` for a single one).
        named: Slots of the model's parameters, by name.
        constants: Tensors that are the same in every pass.
        batch_axes: The batch axis of each slot; None if it mixes its inputs.
        names: The names of all calls of the pass.
        output: The slot the class scores are made from.
    """

    steps: list[RecordedCall] = field(default_factory=list)
    inputs: dict[str, int] = field(default_factory=dict)
    named: dict[str, int] = field(default_factory=dict)
    constants: dict[int, Tensor] = field(default_factory=dict)
    batch_axes: dict[int, BatchAxis | None] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    output: int = -1


def fill_slots(template: Any, values: Values, n: int) -> Any:
    """Fill the slots and sizes of an argument for a batch of `n`."""
    kind = type(template)
    if kind is Slot:
        return values[template.number]
    if kind is Multiple:
        return int(template.factor * n)
    if kind is tuple or kind is list:
        return kind(fill_slots(item, values, n) for item in template)
    if kind is dict:
        return {name: fill_slots(item, values, n) for name, item in template.items()}
    if kind is slice:
        return slice(*(fill_slots(getattr(template, at), values, n) for at in ("start", "stop", "step")))
    return template


def run(steps: Iterable[RecordedCall], values: Values, n: int) -> None:
    """Run steps one after the other, and drop every tensor after its last use."""
    for step in steps:
        step.run(values, n)
        for number in step.drops:
            values.pop(number, None)


def value_at(result: Any, path: tuple[int, ...]) -> Any:
    """Return the value at a path inside a call's result."""
    for position in path:
        result = result[position]
    return result


def split_steps(tape: Tape, start: int, touched: set[int]) -> tuple[list[RecordedCall], list[RecordedCall]]:
    """Split the steps at the cut: steps that no candidate can change, and the rest.

    Steps that depend on touched parameters are behind the cut. If one of them works in place, order matters, and all
    steps from the cut on are behind it. Steps that depend on the number of rows alone (`arange(n)`) are on both sides.
    """
    ordered = any(step.mutates for step in tape.steps[start:])
    hot = set(touched)
    before: list[RecordedCall] = []
    behind: list[RecordedCall] = []
    for at, step in enumerate(tape.steps):
        if step.expects is not None and step.takes & hot:
            raise NotRecordableError("its course depends on what the layers give")
        if step.opaque and (step.takes & hot or (ordered and at >= start)):
            raise NotRecordableError(step.opaque)
        if step.expects is None and ((ordered and at >= start) or step.takes & hot):
            behind.append(step)
            hot.update(number for number, _ in step.gives)
            continue
        before.append(step)
        if not step.follows and any(tape.batch_axes[number] != BatchAxis(None) for number, _ in step.gives):
            behind.append(step)
    return before, behind


def required_slots(steps: Sequence[RecordedCall], wanted: int) -> set[int]:
    """List the slots that some steps read before they fill them."""
    entering: set[int] = set()
    given: set[int] = set()
    for step in steps:
        entering |= step.takes - given
        given.update(number for number, _ in step.gives)
    return entering | ({wanted} - given)


def select_needed(steps: Sequence[RecordedCall], wanted: set[int]) -> list[RecordedCall]:
    """Select the steps that some slots need, and note after which step each slot can be dropped."""
    alive = set(wanted)
    kept: list[RecordedCall] = []
    for step in reversed(steps):
        if step.mutates or step.expects is not None or any(number in alive for number, _ in step.gives):
            around = step.takes | {number for number, _ in step.gives}
            kept.append(replace(step, drops=tuple(around - alive)))
            alive |= step.takes
    return kept[::-1]
