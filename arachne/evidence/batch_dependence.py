"""Inputs whose class depends on how many inputs the model is given at once.

Matrix products round differently in batches of different sizes. That changes a class only where the two best scores
are almost equal, so those inputs are run again, alone and in another batch. A few others are run alone as well: where
the class of one of these changes, the model itself mixes the inputs of a batch, and all inputs are run again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from arachne.data.labelled import LabelledData
from arachne.model.backend import ModelBackend
from arachne.model.values import Array, Inputs, take
from arachne.tasks import closest_two, decide
from arachne.text import Brief, pluralise

MAX_SCORE_GAP = 1e-4
"""The largest gap between the two best scores of a near tie, relative to the largest score."""

MAX_RERUN, PROBE_INPUTS, OTHER_BATCH_SIZE = 256, 8, 7
"""The most near ties that are run again, how many other inputs are, and the size of the other batches."""

MAX_NAMED = 10
"""The most inputs named on one line."""


@dataclass(frozen=True, eq=False)
class BatchDependent(Brief):
    """Inputs whose class depends on the batch.

    Attributes:
        data: The data.
        positions: Positions of the inputs in it `(m,)`.
        rows: Their row numbers in the user's data `(m,)`.
        predictions: Their classes as measured, in large batches `(m,)`.
        others: Their classes in a batch of another size `(m,)`.
        sizes: The size of that batch `(m,)`.
        mixes_inputs: Whether the model mixes the inputs of a batch, beyond rounding.
    """

    data: LabelledData
    positions: Array
    rows: Array
    predictions: Array
    others: Array
    sizes: Array
    mixes_inputs: bool

    def __len__(self) -> int:
        return len(self.rows)

    def __str__(self) -> str:
        """One line: how many inputs, which, and both classes of each."""
        named = [
            f"{f'row {row}' if self.data.names is None else self.data.names[position]} "
            f"({self.data.class_name(was)}, {'alone' if size == 1 else f'in {size}'} {self.data.class_name(other)})"
            for position, row, was, other, size in zip(*self._columns(), strict=True)
        ]
        more = f" and {len(self) - MAX_NAMED:,} more" if len(self) > MAX_NAMED else ""
        why = "; the model mixes the inputs of a batch" if self.mixes_inputs else ""
        return (
            f"the class of {pluralise(len(self), 'input')} depends on how many are run at once{why}: "
            f"{', '.join(named[:MAX_NAMED])}{more}"
        )

    def to_json(self) -> list[dict[str, Any]]:
        """Return one object for each input."""
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
        return [column.tolist() for column in (self.positions, self.rows, self.predictions, self.others, self.sizes)]


def batch_dependent(
    backend: ModelBackend, data: LabelledData, scores: Array, rows: Array | None = None
) -> BatchDependent:
    """Find the inputs whose class depends on the batch.

    Args:
        backend: The model.
        data: The inputs.
        scores: The model's scores of them, `(n, classes)`, from large batches.
        rows: Their row numbers in the user's data `(n,)`, if that has more rows.
    """
    predictions = decide(scores)
    some = np.unique(np.linspace(0, len(data) - 1, min(PROBE_INPUTS, len(data))).astype(np.int64))
    mixed = bool((_predict(backend, data.inputs, some, 1) != predictions[some]).any())
    tried = np.arange(len(data)) if mixed else _near_ties(scores)
    found: dict[int, tuple[int, int]] = {}
    for size in (OTHER_BATCH_SIZE, 1):  # the class of an input alone has precedence
        there = _predict(backend, data.inputs, tried, size)
        found |= {int(at): (int(one), size) for at, one in zip(tried, there, strict=True) if one != predictions[at]}
    changed = np.array(sorted(found), np.int64)
    others, sizes = (np.array([found[int(at)][which] for at in changed], np.int64) for which in (0, 1))
    # A near tie among the probes is no sign that the model mixes inputs.
    mixed = mixed and not np.isin(changed, _near_ties(scores)).all()
    numbers = changed if rows is None else rows[changed]
    return BatchDependent(data, changed, numbers, predictions[changed], others, sizes, mixed)


def _near_ties(scores: Array) -> Array:
    """Return the rows whose two best scores are almost equal: the closest, at most `MAX_RERUN`."""
    if scores.shape[1] < 2:
        return np.zeros(0, np.int64)
    second, best = closest_two(scores)
    gap = (best - second) / np.maximum(np.maximum(scores.max(axis=1), -scores.min(axis=1)), 1e-30)
    closest = np.argsort(gap, kind="stable")[:MAX_RERUN]
    return np.sort(closest[gap[closest] <= MAX_SCORE_GAP])


def _predict(backend: ModelBackend, inputs: Inputs, rows: Array, size: int) -> Array:
    """Predict the classes of some inputs `(m,)` in batches of one size."""
    parts = [backend.predict(take(inputs, rows[at : at + size])) for at in range(0, len(rows), size)]
    return np.concatenate([np.zeros(0, np.int64), *parts])
