"""Decisions between classes: which class is decided for, whether that is right, and by how much.

This is the only module that takes an argmax of class scores. A decision with a score that is not a number is never
right, whatever its other scores are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from arachne.text import Brief

Array = npt.NDArray[Any]

BLOCK_VALUES = 1 << 20
"""Scores that are sorted at a time: a copy of those of ten thousand classes takes as much as all else."""


@dataclass(frozen=True, eq=False)
class Decisions(Brief):
    """The decisions that a task reads from a model's outputs.

    Attributes:
        scores: Class scores `(m, classes)`.
        labels: The class each decision should be for, `(m,)`.
        inputs: The number of the input each decision belongs to, int64 `(m,)`, ascending.
        first: The number, among all classes of the task, of the class that column 0 of a decision's scores stands for,
            int64 `(m,)`; None where that is class 0 for all of them. With several labels, each decision is between the
            absence and the presence of its own label, which are two of many classes.
    """

    scores: Array
    labels: Array
    inputs: Array
    first: Array | None = None

    def __len__(self) -> int:
        return len(self.labels)


def decide(scores: Array) -> Array:
    """Return the class with the highest score, `(m,)`, from class scores `(m, classes)`; the first of equal ones."""
    return np.asarray(np.argmax(scores, axis=1))


def correct(scores: Array, labels: Array) -> Array:
    """Tell which decisions are right, bool `(m,)`; one with a NaN among its class scores `(m, classes)` never is."""
    return np.asarray((decide(scores) == labels) & ~np.isnan(scores).any(axis=1))


def best_others(scores: Array, labels: Array) -> Array:
    """Return the class with the highest score besides the true one, `(m,)`, from class scores `(m, classes)`."""
    others = scores.copy()
    others[np.arange(len(labels)), labels] = -np.inf
    return decide(others)


def margins(scores: Array, labels: Array) -> Array:
    """Return the score of the true class minus the best other one, `(m,)`, from class scores `(m, classes)`."""
    each = np.arange(len(labels))
    found: Array = scores[each, labels] - scores[each, best_others(scores, labels)]
    return found


def closest_two(scores: Array) -> tuple[Array, Array]:
    """Return the second highest and the highest of the class scores `(m, classes)` of each decision, both `(m,)`."""
    rows = max(1, BLOCK_VALUES // scores.shape[1])
    found = [np.partition(scores[at : at + rows], -2, axis=1)[:, -2:] for at in range(0, len(scores), rows)]
    second, best = (np.concatenate(found) if found else scores[:, -2:]).T
    return second, best
