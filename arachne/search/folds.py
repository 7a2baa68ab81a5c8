"""Which inputs a gradient step looks at, and which are kept back from it to judge what it did."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from arachne.search.base import Problem
from arachne.values import Array


@dataclass(frozen=True, eq=False)
class Batch:
    """The inputs of one gradient step: negatives first.

    Attributes:
        rows: Row numbers of the fitness inputs.
        labels: Their true classes, `(rows,)`.
        before: The original model's scores of them, `(rows, classes)`.
        shares: What each counts, float64 `(rows,)`: the shares of the negatives sum to 1, those of the positives too,
            and those of the inputs that must never break.
        negative: Which of them are negatives, bool `(rows,)`.
    """

    rows: Array
    labels: Array
    before: Array
    shares: Array
    negative: Array


def fold_numbers(problem: Problem, folds: int, *, rng: np.random.Generator) -> Array:
    """The fold of every fitness input `(n,)`: each fold has its share of every term and class."""
    inputs = problem.fitness_inputs
    strata = inputs.terms * (int(inputs.labels.max(initial=0)) + 1) + inputs.labels
    found, dealt = np.zeros(len(inputs), np.int64), 0
    for stratum in np.unique(strata):
        rows = rng.permutation(np.flatnonzero(strata == stratum))
        found[rows] = (dealt + np.arange(len(rows))) % folds
        dealt += len(rows)
    return found


def rows_by_kind(problem: Problem, among: Array) -> tuple[Array, Array, Array]:
    """The row numbers of the negatives, positives and never-break inputs that a run looks at, among those flagged.

    Inputs that must never break are looked at by every run: they judge nothing, so none is kept back.
    """
    inputs = problem.fitness_inputs
    negative, positive = (np.flatnonzero(inputs.of_kind(kind) & among) for kind in ("negative", "positive"))
    return negative, positive, np.flatnonzero(inputs.of_kind("never_break"))


def draw_batch(problem: Problem, by_kind: tuple[Array, Array, Array], most: int, *, rng: np.random.Generator) -> Batch:
    """Inputs for one step: at most this many of each kind, out of what `rows_by_kind` gave."""
    inputs = problem.fitness_inputs
    rows, shares = [], []
    for own in by_kind:
        if len(own) > most:
            own = rng.choice(own, most, replace=False)
        weights = inputs.weights[own]
        rows.append(own)
        shares.append(weights / max(float(weights.sum()), 1e-300))
    found = np.concatenate(rows)
    return Batch(
        rows=found,
        labels=inputs.labels[found],
        before=problem.original_scores[found],
        shares=np.concatenate(shares),
        negative=np.arange(len(found)) < len(rows[0]),
    )
