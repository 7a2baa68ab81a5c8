"""Folds of the inputs, and the batch of inputs that one gradient step uses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from arachne.model.values import Array
from arachne.search.base import Problem


@dataclass(frozen=True, eq=False)
class Batch:
    """The inputs of one gradient step: negatives first.

    Attributes:
        rows: Row numbers of the fitness inputs.
        labels: Their true classes, `(rows,)`.
        before: The original model's scores of them, `(rows, classes)`.
        shares: Their weights in the loss, float64 `(rows,)`: they sum to 1 over the negatives, over the positives, and
            over the never-break inputs.
        negative: Which of them are negatives, bool `(rows,)`.
    """

    rows: Array
    labels: Array
    before: Array
    shares: Array
    negative: Array


def fold_numbers(problem: Problem, folds: int, *, rng: np.random.Generator) -> Array:
    """Assign a fold to every fitness input `(n,)`, stratified by term and class."""
    inputs = problem.fitness_inputs
    strata = inputs.terms * (int(inputs.labels.max(initial=0)) + 1) + inputs.labels
    firsts = np.arange(len(inputs))
    if inputs.decisions is not None:  # the decisions of an input are one draw: they stay together
        _, firsts, owners = np.unique(inputs.decisions.owners, return_index=True, return_inverse=True)
        strata = strata[firsts]
    found, dealt = np.zeros(len(firsts), np.int64), 0
    for stratum in np.unique(strata):
        rows = rng.permutation(np.flatnonzero(strata == stratum))
        found[rows] = (dealt + np.arange(len(rows))) % folds
        dealt += len(rows)
    return found if inputs.decisions is None else found[owners]


def rows_by_kind(problem: Problem, among: Array) -> tuple[Array, Array, Array]:
    """Return the row numbers of the negatives, positives and never-break inputs that a run uses, of those flagged.

    Every run uses all never-break inputs, because they do not judge points.
    """
    inputs = problem.fitness_inputs
    negative, positive = (np.flatnonzero(inputs.of_kind(kind) & among) for kind in ("negative", "positive"))
    return negative, positive, np.flatnonzero(inputs.of_kind("never_break"))


def draw_batch(problem: Problem, by_kind: tuple[Array, Array, Array], most: int, *, rng: np.random.Generator) -> Batch:
    """Draw the inputs of one step: at most `most` of each kind, from the result of `rows_by_kind`."""
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
