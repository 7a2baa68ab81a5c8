"""A long patch in a few lines: how much changes in each row (neuron or channel) of each tensor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from arachne.patch import WeightChange
    from arachne.patch.change import TensorChange

MAX_LISTED_WEIGHTS = 40
"""A patch of more weights than this is summed up before its values, and only so many values are shown."""


@dataclass(frozen=True)
class RowChange:
    """The changes in one row of a tensor.

    Attributes:
        tensor: The tensor's name.
        row: The first index; of a convolution's kernel the output channel.
        word: What such a row is called; empty for a tensor of one axis, which counts as a whole.
        weights: How many weights of it change.
        size: The root of the sum of their squared changes.
        largest: The largest single change, with its sign.
    """

    tensor: str
    row: int
    word: str
    weights: int
    size: float
    largest: float

    @property
    def name(self) -> str:
        """`row 7`, `channel 7`, or `all of it`."""
        return f"{self.word} {self.row}" if self.word else "all of it"


def change_of(entry: WeightChange) -> float:
    """How much a weight changes."""
    return entry.new - entry.old


def size_of(entries: Sequence[WeightChange]) -> float:
    """The root of the sum of squared changes."""
    return math.sqrt(math.fsum(change_of(entry) ** 2 for entry in entries))


def row_changes(change: TensorChange) -> list[RowChange]:
    """The touched rows of a tensor, the largest change first. A tensor of one axis, such as a bias, is one row."""
    tensor = change.tensor
    rows = {0: change.entries} if len(tensor.shape) < 2 else change.rows
    word = "channel" if len(tensor.shape) > 2 else "row" * (len(tensor.shape) == 2)
    found = [
        RowChange(
            tensor.name, row, word, len(entries), size_of(entries), max(map(change_of, entries), key=abs, default=0.0)
        )
        for row, entries in rows.items()
    ]
    return sorted(found, key=lambda row: (-row.size, row.row))


def all_rows(changes: Sequence[TensorChange]) -> list[RowChange]:
    """The touched rows of all tensors, the largest change first."""
    return sorted((row for change in changes for row in row_changes(change)), key=lambda row: -row.size)


def first_by_size(changes: Sequence[TensorChange], most: int | None) -> list[tuple[TensorChange, list[WeightChange]]]:
    """The `most` largest changes of all tensors, by tensor, largest first.

    All of them in the tensor's own order when there are no more than `most`, or `most` is None.
    """
    everything = [entry for change in changes for entry in change.entries]
    if most is None or len(everything) <= most:
        return [(change, list(change.entries)) for change in changes]
    ranked = sorted(everything, key=lambda entry: -abs(change_of(entry)))[:most]
    rank = {entry.address: number for number, entry in enumerate(ranked)}
    found = []
    for change in changes:
        own = [entry for entry in change.entries if entry.address in rank]
        if own:
            found.append((change, sorted(own, key=lambda entry: rank[entry.address])))
    return found


def summed_up(row: RowChange) -> tuple[str, str, str]:
    """How many weights of a row change, by how much overall, and the largest change: `35`, `0.412`, `-0.051`."""
    return f"{row.weights:,}", f"{row.size:.3g}", f"{row.largest:+.3g}"
