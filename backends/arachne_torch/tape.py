"""A pass as a list of steps that can be run again on any number of inputs.

Steps are torch calls. Single steps whose arguments depend on the inputs' values (packing sequences by their lengths)
are marked as *opaque*: they cannot be run again, but what they give can be taken from a pass of the model itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from torch import Tensor

from arachne.adapting.folds import Fold

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
    """A whole number that is `factor` times the batch size."""

    factor: Fraction


@dataclass(eq=False)
class Step:
    """One call: what it takes from slots, and the slots of what it gives.

    Attributes:
        takes: The slots among its arguments.
        gives: Slots of its results, with the path to each inside the result.
        follows: Whether it depends on the inputs; one that does not is run anew for every number of rows.
        number: Its place among the calls of the pass.
        layers: The layers it uses.
        continues: Whether what it gives is what leaves its one layer.
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
        args = [filled(argument, values, n) for argument in self.args]
        result = self.func(*args, **{name: filled(value, values, n) for name, value in self.kwargs.items()})
        for number, path in self.gives:
            values[number] = at(result, path)
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
        folds: For each slot, where it holds its inputs; None where it does not tell them apart.
        names: The names of all calls of the pass.
        output: The slot the class scores are made from.
    """

    steps: list[Step] = field(default_factory=list)
    inputs: dict[str, int] = field(default_factory=dict)
    named: dict[str, int] = field(default_factory=dict)
    constants: dict[int, Tensor] = field(default_factory=dict)
    folds: dict[int, Fold | None] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    output: int = -1


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


def at(result: Any, path: tuple[int, ...]) -> Any:
    """What stands at a path inside a call's result."""
    for position in path:
        result = result[position]
    return result
