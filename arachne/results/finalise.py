"""From the point of a front that was chosen to its patch and the evidence for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from arachne.choose.budget import Budget, Choice
from arachne.choose.minimise import minimise
from arachne.choose.select import select_point
from arachne.choose.simplest import simple_choices
from arachne.data.grouping import groups_by_column
from arachne.data.part import Part
from arachne.data.split import Split
from arachne.evidence import Evidence, measure
from arachne.model.backend import ModelBackend
from arachne.patch import Patch
from arachne.report.objects import patch_evidence
from arachne.scoring.cut import Cuts
from arachne.scoring.predicted import predict_scores, verify_scores
from arachne.search import Candidate, Problem, SearchResult
from arachne.search.measured import MeasuredCandidate, count_found, measure_front

SHRUNK = (0.75, 0.5, 0.25)
"""Where a search hands back one candidate, these shares of its change are the other points of the front."""


def add_smaller_steps(problem: Problem, found: SearchResult) -> SearchResult:
    """Add copies of a search's one candidate that change each weight less.

    A low-rank candidate stays alone: its own search has tried many strengths.
    """
    (best,) = found.front
    if best.edit is not None:
        return found
    suspects = best.selection
    change = best.values - suspects.values
    copies = [
        replace(problem.score_exactly(Candidate(suspects, suspects.values + share * change)), made_by=best.made_by)
        for share in SHRUNK
    ]
    return replace(found, front=(best, *copies))


def minimise_choice(
    problem: Problem, found: SearchResult, points: tuple[MeasuredCandidate, ...], choice: Choice
) -> tuple[SearchResult, tuple[MeasuredCandidate, ...]]:
    """Minimise the chosen point if it then still keeps the budget; the larger one goes to the end of the front.

    What simpler searchers offer is minimised too, as a repair by one of them alone does: they are compared with the
    choice. A point with a guarantee stays as it is, because the guarantee was tested for that very patch.
    """
    if choice.index is None or choice.budget.confidence is not None:
        return found, points
    front, measured = list(found.front), list(points)
    offers = [number for _, number in simple_choices(points, choice, problem.split.class_names)]
    for number in (choice.index, *offers):
        small = _minimise_point(problem, points[number], choice)
        if small is not None:
            front.append(front[number])
            measured.append(measured[number])
            front[number], measured[number] = small.candidate, small
    return replace(found, front=tuple(front)), tuple(measured)


def _minimise_point(problem: Problem, large: MeasuredCandidate, choice: Choice) -> MeasuredCandidate | None:
    """Return a point with fewer weights that still keeps the budget; None if there is none."""
    candidate = large.candidate if large.candidate.held_back is None else minimise(problem, large.candidate)
    if candidate is large.candidate:
        return None
    rows = np.zeros(0, np.int64) if problem.rows is None else problem.rows
    (small,) = measure_front(problem.backend, problem.split, [candidate], rows, problem.cuts)
    small = replace(small, minimised_from=large.weights, minimised_for=choice.budget.max_break)
    kept = select_point([small], choice.budget, problem.split.class_names, choice.objective).index is not None
    return small if kept and (candidate.edit is not None or small.weights < large.weights) else None


def build_patch(
    backend: ModelBackend,
    split: Split,
    found: SearchResult,
    choice: Choice | None,
    provenance: Mapping[str, Any],
    points: Sequence[MeasuredCandidate] = (),
    cuts: Mapping[Part, Cuts] | None = None,
) -> tuple[SearchResult, Patch, Evidence]:
    """Build the patch of the chosen candidate, and measure its evidence on every part of the data.

    Without a choice, the search's own candidate is used. If nothing keeps the budget, the patch changes nothing and the
    evidence says so.
    """
    if choice is not None and choice.index is None:
        patch = Patch.between(backend, (), (), provenance=provenance)
        evidence = replace(measure(backend, patch, split, budget=choice.budget.max_break), nothing_within=choice.why)
        return found, patch.with_evidence(patch_evidence(evidence)), evidence
    more: dict[str, Any] = {}
    if choice is not None and choice.index is not None:
        found = replace(found, chosen=choice.index)
        more = {"budget": choice.budget.max_break, "patches_compared": count_found(points)}
    if found.candidate.edit is not None:
        patch = Patch.of_edits(backend, [found.candidate.edit], provenance=provenance)
    else:
        patch = Patch.between(backend, found.addresses, found.values, provenance=provenance)
    predicted = predict_scores(backend, split, found.selection, found.values, cuts, found.candidate.edit)
    evidence = measure(backend, patch, split, run=lambda part: verify_scores(backend, part, predicted(part)), **more)
    if choice is not None:
        evidence = with_limits(evidence, choice.budget, split)
    trials = points[found.chosen].out_of_fold if choice is not None and points else None
    if trials is not None:
        evidence = replace(evidence, repaired_in_trials=trials.repair.count)
    return found, patch.with_evidence(patch_evidence(evidence)), evidence


def with_limits(evidence: Evidence, budget: Budget, split: Split) -> Evidence:
    """Add the budget's limits on accuracy, classes and groups, so that the evidence says whether they were kept."""
    limits = zip(split.class_names, budget.class_limits(split.class_names).tolist(), strict=True)
    classes = {name: limit for name, limit in limits if np.isfinite(limit)}
    columns = None if split.objective is None else [str(split.objective.group_column)]
    groups = budget.group_limits(groups_by_column(split.seen.data), columns) if budget.max_group_drop else {}
    return replace(evidence, class_limits=classes, group_limits=groups, max_drop=budget.max_drop)
