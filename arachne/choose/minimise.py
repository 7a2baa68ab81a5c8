"""Minimise a patch: drop the changed weights that it does not need."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from arachne.model.values import Array
from arachne.scoring.base import Scorer
from arachne.search.influence import influences
from arachne.search.problem import Problem
from arachne.search.state import Candidate
from arachne.weights.edit import LowRankEdit

Counts = tuple[int, int, int, int, int, float]
"""Repaired inputs, repaired copies, and what they cost: see `_counts`."""

MIN_REPAIRED_SHARE = 0.98
"""The share of the repaired negatives that must stay repaired; all of them where a rule is to be kept."""

STRENGTH_FACTORS = (1.0, 1.15, 1.3)
"""The remaining changes may be scaled by these factors, to make up for the dropped ones."""

MAX_MINIMISED = 20_000
"""A patch of more weights stays as it is: it comes from training on, and has no few weights that do the work."""


def minimise(problem: Problem, candidate: Candidate) -> Candidate:
    """Drop the changes that a patch does not need; return the candidate itself if it needs all of them.

    Of a change of a whole matrix, the last directions are dropped, which do least to inputs.
    The changes with the smallest effect on margins are dropped first: |change| sqrt(F), with F as in `influence`. The
    remaining ones must repair `MIN_REPAIRED_SHARE` of the fitness inputs that the candidate repairs, and of the copies
    with a cause planted (all of them where a rule is to be kept), break no more than it does, leave no more other
    errors where these count, and be as fair to groups if there is an objective. A candidate that repairs none of them
    stays as it is: anything would do as well there.
    """
    if candidate.edit is not None:
        return _cut_to_rank(problem, candidate, candidate.edit)
    suspects = candidate.selection
    change = candidate.values - suspects.values
    if np.count_nonzero(change) > MAX_MINIMISED:
        return candidate
    own = problem.with_suspects(suspects)
    wanted = _counts(own, suspects.values + change)
    if not wanted[0]:
        return candidate
    matter = np.abs(change) * np.sqrt(influences(own, suspects.values + change, rng=np.random.default_rng(0)))
    order = np.lexsort((-np.abs(change), -matter))[: np.count_nonzero(change)]
    found: Array | None = None
    fewest, most = 0, len(order)
    while most - fewest > 1:
        middle = (fewest + most) // 2
        tried = _values_with_changes(own, change, order[:middle], wanted)
        found, fewest, most = (found, middle, most) if tried is None else (tried, fewest, middle)
    if found is None:
        return candidate
    changed = np.flatnonzero(found != suspects.values)
    return replace(candidate, selection=suspects.take(changed), values=found[changed])


def _cut_to_rank(problem: Problem, candidate: Candidate, edit: LowRankEdit) -> Candidate:
    """Return the candidate with the fewest directions that has the effect of all of them."""
    wanted: Counts | None = None
    for rank in (edit.rank, *range(1, edit.rank)):
        left, right = edit.left[:, :rank], edit.right[:, :rank]
        scorer = problem.low_rank_scorer(*edit.key, right)
        counts = _counts(problem, left.ravel(), scorer)
        if wanted is None:
            wanted = counts
        elif wanted[0] and _reaches(counts, wanted, _least_share(problem)):
            return replace(candidate, edit=replace(edit, left=left, right=right))
    return candidate


def _values_with_changes(problem: Problem, change: Array, which: Array, wanted: Counts) -> Array | None:
    """Scale these changes alone until they reach the wanted counts; return values `(k,)`, None if no factor does."""
    for factor in STRENGTH_FACTORS:
        values = problem.suspects.values.copy()
        values[which] += factor * change[which]
        values = problem.round_to_storage(values)
        if _reaches(_counts(problem, values), wanted, _least_share(problem)):
            return values
    return None


def _least_share(problem: Problem) -> float:
    return MIN_REPAIRED_SHARE if problem.split.seen.task.NEEDS_LABELS else 1.0


def _reaches(counts: Counts, wanted: Counts, share: float) -> bool:
    """Tell whether a smaller patch repairs at least this share of what the larger one repairs, and costs no more."""
    enough = all(own >= share * most for own, most in zip(counts[:2], wanted[:2], strict=True))
    return enough and all(cost <= most for cost, most in zip(counts[2:], wanted[2:], strict=True))


def _counts(problem: Problem, values: Array, scorer: Scorer | None = None) -> Counts:
    """Count repaired inputs and copies, broken and never-break inputs, other errors left, and the objective."""
    inputs = problem.fitness_inputs
    scores = (scorer or problem.scorer).scores(values, np.arange(len(inputs)))
    right = inputs.correct(scores)
    left = int((~right & inputs.of_kind("other")).sum())
    repaired, *broken = inputs.outcome(inputs.wrong_by_term(scores))
    copies = int(right[problem.copies].sum())
    return repaired - copies, copies, broken[0], broken[1], left, float(problem.objective_costs(right[None])[0])
