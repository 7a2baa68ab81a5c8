"""Inputs whose class depends on how many inputs the model is given at once.

Matrix products round differently in batches of different sizes. That changes a class only where the two best scores
are almost equal, so those inputs are run again, alone and in another batch. A few others are run alone as well: where
the class of one of these changes, the model itself mixes the inputs of a batch, and all inputs are run again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from arachne.backend import ModelBackend
from arachne.data.labelled import LabelledData
from arachne.values import Array, Inputs, take
from arachne.wording import counted

NEAR = 1e-4
"""How far apart the two best scores of a doubtful input are at most, in units of the largest."""

MOST, FEW, SIZE = 256, 8, 7
"""Doubtful inputs that are run again; others that are; and the size of the other batches."""

MOST_NAMED = 10
"""How many inputs are named on one line."""


@dataclass(frozen=True, eq=False)
class BatchDependent:
    """Inputs whose class depends on the batch.

    Attributes:
        data: The data.
        places: Which of its inputs `(m,)`.
        rows: Their row numbers in the user's data `(m,)`.
        predictions: Their classes as measured, in large batches `(m,)`.
        others: Their classes in a batch of another size `(m,)`.
        sizes: That size `(m,)`.
        mixed: Whether the model mixes the inputs of a batch, beyond rounding.
    """

    data: LabelledData
    places: Array
    rows: Array
    predictions: Array
    others: Array
    sizes: Array
    mixed: bool

    def __len__(self) -> int:
        return len(self.rows)

    def __str__(self) -> str:
        """How many, which, and what each gets."""
        named = [
            f"{f'row {row}' if self.data.names is None else self.data.names[place]} "
            f"({self.data.class_name(was)}, {'alone' if size == 1 else f'in {size}'} {self.data.class_name(other)})"
            for place, row, was, other, size in zip(*self._columns(), strict=True)
        ]
        more = f" and {len(self) - MOST_NAMED:,} more" if len(self) > MOST_NAMED else ""
        why = "; the model mixes the inputs of a batch" if self.mixed else ""
        return (
            f"the class of {counted(len(self), 'input')} depends on how many are run at once{why}: "
            f"{', '.join(named[:MOST_NAMED])}{more}"
        )

    def to_json(self) -> list[dict[str, Any]]:
        """One object for each input."""
        return [
            {
                "row": row,
                "predicted": self.data.class_name(was),
                "batch": size,
                "predicted_there": self.data.class_name(other),
            }
            for _, row, was, other, size in zip(*self._columns(), strict=True)
        ]

    def _columns(self) -> list[list[int]]:
        return [column.tolist() for column in (self.places, self.rows, self.predictions, self.others, self.sizes)]


def batch_dependent(
    backend: ModelBackend, data: LabelledData, scores: Array, rows: Array | None = None
) -> BatchDependent:
    """Look for inputs whose class depends on the batch.

    Args:
        backend: The model.
        data: The inputs.
        scores: The model's scores of them, `(n, classes)`, from large batches.
        rows: Their row numbers in the user's data `(n,)`, where that has more of them.
    """
    predictions = np.argmax(scores, axis=1)
    some = np.unique(np.linspace(0, len(data) - 1, min(FEW, len(data))).astype(np.int64))
    mixed = bool((_predicted(backend, data.inputs, some, 1) != predictions[some]).any())
    tried = np.arange(len(data)) if mixed else _doubtful(scores)
    found: dict[int, tuple[int, int]] = {}
    for size in (SIZE, 1):  # what an input gets alone is told, where it differs there
        there = _predicted(backend, data.inputs, tried, size)
        found |= {int(at): (int(one), size) for at, one in zip(tried, there, strict=True) if one != predictions[at]}
    changed = np.array(sorted(found), np.int64)
    others, sizes = (np.array([found[int(at)][which] for at in changed], np.int64) for which in (0, 1))
    # A doubtful input may have been among the few by chance: it alone is no sign that the model mixes inputs.
    mixed = mixed and not np.isin(changed, _doubtful(scores)).all()
    numbers = changed if rows is None else rows[changed]
    return BatchDependent(data, changed, numbers, predictions[changed], others, sizes, mixed)


def _doubtful(scores: Array) -> Array:
    """Rows whose two best scores are almost equal, at most `MOST`, the closest."""
    if scores.shape[1] < 2:
        return np.zeros(0, np.int64)
    second, best = np.partition(scores, -2, axis=1)[:, -2:].T
    gap = (best - second) / np.maximum(np.abs(scores).max(axis=1), 1e-30)
    closest = np.argsort(gap, kind="stable")[:MOST]
    return np.sort(closest[gap[closest] <= NEAR])


def _predicted(backend: ModelBackend, inputs: Inputs, rows: Array, size: int) -> Array:
    """The classes of some inputs `(m,)`, so many at a time."""
    parts = [backend.predict(take(inputs, rows[at : at + size])) for at in range(0, len(rows), size)]
    return np.concatenate([np.zeros(0, np.int64), *parts])
