"""Minimise: a patch with as few changed weights as do what it does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from arachne.search.base import Problem
from arachne.search.influence import influences
from arachne.search.state import Candidate
from arachne.suspects import Suspects
from arachne.values import Array

ENOUGH = 0.98
"""The share of the repaired negatives that must stay repaired."""

STRONGER = (1.0, 1.15, 1.3)
"""What is left may be changed this much more, to make up for what is dropped."""


def minimised(problem: Problem, candidate: Candidate) -> Candidate:
    """The same patch without the changes it can do without, or the candidate itself when it needs them all.

    Changes are dropped from the least on that matter least to margins, |change| sqrt(F) with F as in `influence`. What
    is left must repair `ENOUGH` of what the candidate repairs among the fitness inputs and break no more of them, and
    be as fair to groups where that was asked for.
    """
    suspects = Suspects.of(problem.backend, candidate.addresses)
    place = {address: number for number, address in enumerate(candidate.addresses)}
    change = candidate.values[[place[address] for address in suspects.addresses]] - suspects.values
    own = problem.with_suspects(suspects)
    wanted = _counts(own, suspects.values + change)
    matter = np.abs(change) * np.sqrt(influences(own, suspects.values + change, rng=np.random.default_rng(0)))
    order = np.lexsort((-np.abs(change), -matter))[: np.count_nonzero(change)]
    found: Array | None = None
    fewest, most = 0, len(order)
    while most - fewest > 1:
        middle = (fewest + most) // 2
        tried = _kept(own, change, order[:middle], wanted)
        found, fewest, most = (found, middle, most) if tried is None else (tried, fewest, middle)
    if found is None:
        return candidate
    changed = np.flatnonzero(found != suspects.values)
    return replace(candidate, addresses=tuple(suspects.addresses[number] for number in changed), values=found[changed])


def _kept(problem: Problem, change: Array, kept: Array, wanted: tuple[int, int, int, float]) -> Array | None:
    """Values with only these changes that do what is wanted, `(k,)`; None if no strength of them does."""
    for factor in STRONGER:
        values = problem.suspects.values.copy()
        values[kept] += factor * change[kept]
        values = problem.stored(values)
        repaired, *costs = _counts(problem, values)
        if repaired >= ENOUGH * wanted[0] and all(cost <= most for cost, most in zip(costs, wanted[1:], strict=True)):
            return values
    return None


def _counts(problem: Problem, values: Array) -> tuple[int, int, int, float]:
    """Repaired, broken, never-break inputs broken, and what the objective says."""
    inputs = problem.fitness_inputs
    scores = problem.tunable.scores(values, np.arange(len(inputs)))
    right = np.argmax(scores, axis=1) == inputs.labels
    return *inputs.outcome(inputs.wrong_by_term(scores)), float(problem.costs(right[None])[0])
