"""From the point of a front that was chosen to its patch and the evidence for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from arachne.backend import ModelBackend
from arachne.data.split import Part, Split
from arachne.evidence import Evidence, measure
from arachne.patch import Patch
from arachne.report.objects import patch_evidence
from arachne.search import Candidate, Problem, SearchResult
from arachne.search.choose import Choice, choose
from arachne.search.foreseen import confirmed, foresee
from arachne.search.minimise import minimised
from arachne.search.standing import Point, found_by_search, measure_front
from arachne.search.tunable import Cuts
from arachne.suspects import Suspects

SHRUNK = (0.75, 0.5, 0.25)
"""Where a search hands back one candidate, these shares of its change are the other points of the front."""


def with_shrunk(problem: Problem, found: SearchResult) -> SearchResult:
    """A search's one candidate, and behind it copies that change each weight less."""
    (best,) = found.front
    suspects = Suspects.of(problem.backend, best.addresses)
    place = {address: number for number, address in enumerate(best.addresses)}
    change = best.values[[place[address] for address in suspects.addresses]] - suspects.values
    copies = [
        replace(problem.measured(Candidate(suspects.addresses, suspects.values + share * change)), made_by=best.made_by)
        for share in SHRUNK
    ]
    return replace(found, front=(best, *copies))


def smaller(
    problem: Problem, found: SearchResult, points: tuple[Point, ...], choice: Choice
) -> tuple[SearchResult, tuple[Point, ...]]:
    """The front with the chosen point minimised, where it then still keeps the budget, and the larger one at its end.

    A guarantee was tested for the very patch that was chosen, so that one stays as it is.
    """
    if choice.index is None or choice.budget.confidence is not None or found.front[choice.index].held_back is None:
        return found, points
    large = points[choice.index]
    candidate = minimised(problem, large.candidate)
    (small,) = measure_front(problem.backend, problem.split, [candidate], np.zeros(0, np.int64), problem.cuts)
    small = replace(small, out_of_fold=large.out_of_fold, minimised_from=large.weights)
    small = replace(small, minimised_for=choice.budget.max_break)
    kept = choose([small], choice.budget, problem.split.class_names, choice.objective).index is not None
    if small.weights >= large.weights or not kept:
        return found, points
    front, told = [*found.front, large.candidate], [*points, large]
    front[choice.index], told[choice.index] = candidate, small
    return replace(found, front=tuple(front)), tuple(told)


def take(
    backend: ModelBackend,
    split: Split,
    found: SearchResult,
    choice: Choice | None,
    provenance: Mapping[str, Any],
    points: Sequence[Point] = (),
    cuts: Mapping[Part, Cuts] | None = None,
) -> tuple[SearchResult, Patch, Evidence]:
    """The search with the choice in it, the chosen point's patch, and its evidence from every part of the data.

    Without a choice the search's own candidate is taken. Where nothing keeps the budget, the patch changes nothing and
    the evidence says so.
    """
    if choice is not None and choice.index is None:
        patch = Patch.between(backend, (), (), provenance=provenance)
        evidence = replace(measure(backend, patch, split, budget=choice.budget.max_break), nothing_within=choice.why)
        return found, patch.with_evidence(patch_evidence(evidence)), evidence
    more: dict[str, Any] = {}
    if choice is not None and choice.index is not None:
        found = replace(found, chosen=choice.index)
        more = {"budget": choice.budget.max_break, "patches_compared": found_by_search(points)}
    patch = Patch.between(backend, found.addresses, found.values, provenance=provenance)
    foreseen = foresee(backend, split, found.addresses, found.values, cuts)
    evidence = measure(backend, patch, split, run=lambda part: confirmed(backend, part, foreseen(part)), **more)
    return found, patch.with_evidence(patch_evidence(evidence)), evidence
