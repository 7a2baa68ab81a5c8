"""Folds of the inputs, and the batch of inputs that one gradient step uses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from arachne.model.values import Array
from arachne.search.problem import Problem


@dataclass(frozen=True, eq=False)
class Batch:
    """The inputs of one gradient step: negatives first.

    Attributes:
        rows: Row numbers of the fitness inputs.
        labels: Their true classes, `(rows,)`.
        before: The original model's scores of them, `(rows, classes)`.
        shares: Their weights in the loss, float64 `(rows,)`: they sum to 1 over the inputs of each kind.
        negative: Which of them are negatives, bool `(rows,)`.
    """

    rows: Array
    labels: Array
    before: Array
    shares: Array
    negative: Array


def fold_numbers(problem: Problem, folds: int, *, rng: np.random.Generator) -> Array:
    """Assign a fold to every fitness input `(n,)`, stratified by term and class; a copy is in that of its original."""
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
    if inputs.decisions is not None:
        return found[owners]
    return _with_originals(problem, found)


def _with_originals(problem: Problem, folds: Array) -> Array:
    """Move copies with a cause planted into the folds of the inputs that they were made of."""
    split, rows = problem.split, problem.rows
    if rows is not None and split.copies:
        fold_of = dict(zip(split.seen.rows[rows].tolist(), folds.tolist(), strict=False))
        originals = np.concatenate([copies.rows for copies in split.copies.values()]).tolist()
        own = folds[problem.copies].tolist()
        folds[problem.copies] = [fold_of.get(row, fold) for row, fold in zip(originals, own, strict=True)]
    return folds


def rows_by_kind(problem: Problem, among: Array, *, others: bool = False) -> tuple[Array, ...]:
    """Return the row numbers of the negatives, positives and never-break inputs that a run uses, of those flagged.

    Every run uses all never-break inputs, because they do not judge points. With `others`, errors off the target come
    last, if they count.
    """
    inputs = problem.fitness_inputs
    negative, positive, other = (
        np.flatnonzero(inputs.of_kind(kind) & among) for kind in ("negative", "positive", "other")
    )
    guarded = np.flatnonzero(inputs.of_kind("never_break"))
    return (negative, positive, guarded, other) if others else (negative, positive, guarded)


def draw_batch(problem: Problem, by_kind: tuple[Array, ...], most: int, *, rng: np.random.Generator) -> Batch:
    """Draw the inputs of one step: at most `most` of each kind, from the result of `rows_by_kind`."""
    inputs = problem.fitness_inputs
    rows = draw_rows(by_kind, most, rng=rng)
    weights = [inputs.weights[own] for own in rows]
    found = np.concatenate(rows)
    return Batch(
        rows=found,
        labels=inputs.labels[found],
        before=problem.original_scores[found],
        shares=np.concatenate([own / max(float(own.sum()), 1e-300) for own in weights]),
        negative=np.arange(len(found)) < len(rows[0]),
    )


def draw_rows(by_kind: tuple[Array, ...], most: int, *, rng: np.random.Generator) -> list[Array]:
    """Draw the row numbers of one step, int64 `(rows,)` for each kind; arguments as for `draw_batch`."""
    return [rng.choice(own, most, replace=False) if len(own) > most else own for own in by_kind]
