"""Another round: a search that starts from the patched model and repairs its remaining mistakes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from arachne.localise.base import Localiser
from arachne.model.backend import ModelBackend
from arachne.model.cut import temporary_weights
from arachne.scoring.tail_cache import run_and_keep
from arachne.search.base import Searcher
from arachne.search.build import build_problem
from arachne.search.problem import Problem
from arachne.search.state import Candidate
from arachne.weights.selection import Selection


def another_round(
    problem: Problem,
    taken: Candidate,
    number: int,
    *,
    localiser: Localiser,
    searcher: Searcher,
    alpha: float,
    rng: np.random.Generator,
    stop: Callable[[], str | None] | None = None,
) -> tuple[Candidate, ...]:
    """Return candidates that extend `taken`: its patch plus what a new search finds on the patched model.

    They have no out-of-fold outcome, because the patch they start from has seen every fold. There are none if nothing
    of the fault is left.

    Args:
        problem: The whole repair.
        taken: The candidate to start from.
        number: The number of the round, from 2 on; it is part of the new candidates' `made_by`.
        localiser: Finds the suspects of what is left.
        searcher: Finds their new values.
        alpha: The weight of a negative; a positive has 1.
        rng: Where all randomness comes from.
        stop: Called after each step of the search; a returned reason ends it.
    """
    backend, split = problem.backend, problem.split
    taken = _by_weights(backend, taken)
    with temporary_weights(backend, taken.whole_parameters(backend)):
        outputs, kept = run_and_keep(backend, split.seen.data.inputs)
        seen = replace(split.seen, outputs=outputs, cached_activations=kept if split.seen.task.SINGLE else None)
        left = replace(split, seen=seen, never_break=None, health=None, copies={})
        if not len(left.seen.negatives) or not len(left.seen.positives):
            return ()
        suspects = localiser.localise(backend, left.seen, rng=rng).suspects
        inner = build_problem(
            backend,
            left,
            suspects,
            alpha,
            problem.make_evaluator,
            problem.training,
            problem.allowed,
            others=problem.counts_others,
        )
        found = [_by_weights(backend, one) for one in searcher.search(inner, rng=rng, stop=stop).front]
        inner.forget()
    known: dict[Selection, Problem] = {}
    return tuple(_combine(problem, taken, one, number, searcher.name, known) for one in found)


def _by_weights(backend: ModelBackend, candidate: Candidate) -> Candidate:
    """Return a candidate that changes single weights, so that others can be added to them."""
    if candidate.edit is None:
        return candidate
    sparse = candidate.edit.to_sparse(backend)
    return replace(candidate, selection=sparse.selection, values=sparse.values, edit=None)


def _combine(
    problem: Problem, first: Candidate, second: Candidate, number: int, name: str, known: dict[Selection, Problem]
) -> Candidate:
    """Combine two patches; where they change the same weight, the second wins."""
    if second.selection not in known:
        both = first.selection.union(second.selection, problem.backend)
        known[second.selection] = problem.with_suspects(both)
    own = known[second.selection]
    values = own.suspects.values.copy()
    for one in (first, second):
        values[one.selection.numbers_in(own.suspects)] = one.values
    made_by = f"{second.made_by or name}, round {number}"
    return own.score(Candidate(own.suspects, own.round_to_storage(values), None, made_by))
