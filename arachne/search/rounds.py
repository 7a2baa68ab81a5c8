"""Another round: a search that starts from the patched model, for what is still wrong there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from arachne.backend import ModelBackend, Weights
from arachne.cuts import standing
from arachne.localise.base import Localiser
from arachne.search.base import Problem, Searcher
from arachne.search.posing import posed
from arachne.search.state import Candidate
from arachne.search.tail_inputs import run_and_keep
from arachne.suspects import Suspects
from arachne.values import Address


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
    """Candidates that go on from one: its patch and, over it, what a search finds in the model that has it.

    Nothing is known of them out of fold, since the patch they start from has seen every fold. None are found where
    nothing of the fault is left.

    Args:
        problem: The repair as a whole.
        taken: The candidate to go on from.
        number: Of the round, from 2 on; it stands in the new candidates' `made_by`.
        localiser: Finds the suspects of what is left.
        searcher: Finds their new values.
        alpha: How much a negative counts against a positive.
        rng: Where all randomness comes from.
        stop: Asked after each step of the search; a reason ends it.
    """
    backend, split = problem.backend, problem.split
    with standing(backend, patched(backend, taken)):
        scores, kept = run_and_keep(backend, split.seen.data.inputs)
        left = replace(split, seen=replace(split.seen, scores=scores, kept=kept), never_break=None)
        if not len(left.seen.negatives) or not len(left.seen.positives):
            return ()
        suspects = localiser.localise(backend, left.seen, rng=rng).suspects
        inner, _ = posed(backend, left, suspects, alpha, problem.make_evaluator, problem.training)
        found = searcher.search(inner, rng=rng, stop=stop)
    known: dict[int, Problem] = {}
    return tuple(_joined(problem, taken, one, number, searcher.name, known) for one in found.front)


def patched(backend: ModelBackend, candidate: Candidate) -> Weights:
    """The whole parameters that a candidate changes, with its values in them."""
    found: dict[tuple[str, str], np.ndarray] = {}
    for address, value in zip(candidate.addresses, candidate.values, strict=True):
        place = address.layer, address.parameter
        if place not in found:
            found[place] = backend.get_weights(address.layer)[address.parameter].copy()
        found[place][address.index] = value
    return found


def _joined(
    problem: Problem, first: Candidate, second: Candidate, number: int, name: str, known: dict[int, Problem]
) -> Candidate:
    """Both patches as one; where they change the same weight, the second has the last word."""
    values: dict[Address, float] = dict(zip(first.addresses, first.values.tolist(), strict=True))
    values |= dict(zip(second.addresses, second.values.tolist(), strict=True))
    if id(second.addresses) not in known:
        known[id(second.addresses)] = problem.with_suspects(Suspects.of(problem.backend, tuple(values)))
    own = known[id(second.addresses)]
    ordered = own.stored(np.array([values[address] for address in own.suspects.addresses]))
    made_by = f"{second.made_by or name}, round {number}"
    return own.tuned(Candidate(own.suspects.addresses, ordered, None, made_by))
