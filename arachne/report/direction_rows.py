"""A low-rank change in a few lines: which inputs of the layer each direction reads, and which outputs it moves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from arachne.model.values import Array

if TYPE_CHECKING:
    from arachne.patch.low_rank import LowRankChange

MAX_DIRECTIONS, MAX_ENDS = 4, 4
"""How many directions of a change are listed, and how many inputs and outputs of each."""

Ends = tuple[tuple[int, float], ...]
"""Positions along one side of a matrix with their parts, the largest first."""


@dataclass(frozen=True, eq=False)
class Direction:
    """One of the outer products that a change is the sum of.

    Attributes:
        number: Its place among them, from 1 on.
        size: The Euclidean length of what it changes.
        detector: What it reads, as a vector of length 1 `(in,)`.
        moves: By how much it moves the outputs where its reading is 1, `(out,)`.
        shape: The shape of one row of the tensor.
    """

    number: int
    size: float
    detector: Array
    moves: Array
    shape: tuple[int, ...]

    @property
    def largest_inputs(self) -> Ends:
        """The inputs that it reads most."""
        return _largest(self.detector)

    @property
    def largest_outputs(self) -> Ends:
        """The outputs that it moves most."""
        return _largest(self.moves)

    def input_name(self, position: int) -> str:
        """`13`, or in a kernel channel, row and column: `(2, 0, 1)`."""
        if len(self.shape) < 2:
            return str(position)
        return str(tuple(map(int, np.unravel_index(position, self.shape))))

    @property
    def description(self) -> str:
        """`direction 1, size 0.12: reads inputs 3 (+0.90), 1 (-0.41); moves outputs 7 (-0.11)`."""
        reads = ", ".join(f"{self.input_name(one)} ({part:+.2f})" for one, part in self.largest_inputs)
        moves = ", ".join(f"{one} ({part:+.2g})" for one, part in self.largest_outputs)
        return f"direction {self.number}, size {self.size:.3g}: reads inputs {reads}; moves outputs {moves}"


def directions_of(change: LowRankChange) -> list[Direction]:
    """Return the directions of a change that do most, the largest first; those of a patch taken out do the opposite."""
    left, right = change.edit.left.astype(np.float64), change.edit.right.astype(np.float64)
    lengths = np.linalg.norm(right, axis=0)
    found = []
    for column in np.flatnonzero(lengths > 0).tolist():
        moves = left[:, column] * lengths[column] * (-1 if change.inverted else 1)
        detector = right[:, column] / lengths[column]
        found.append((float(np.linalg.norm(moves)), detector, moves))
    found.sort(key=lambda one: -one[0])
    return [Direction(number, *one, change.tensor.shape[1:]) for number, one in enumerate(found[:MAX_DIRECTIONS], 1)]


def direction_lines(change: LowRankChange) -> list[str]:
    """Return a line for each direction, and one that says how many more there are."""
    found = directions_of(change)
    lines = [one.description for one in found]
    more = change.edit.rank - len(found)
    return [*lines, f"… and {more} more direction{'' if more == 1 else 's'}"] if more > 0 else lines


def _largest(values: Array) -> Ends:
    order: Sequence[int] = np.argsort(-np.abs(values), kind="stable")[:MAX_ENDS].tolist()
    return tuple((one, float(values[one])) for one in order if values[one])
