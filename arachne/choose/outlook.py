"""Predict early in a search how much it will repair, from what its first, quick members repair out of fold.

A shift of biases, a tuned last layer and the closed forms of `erase` and `gate` take a small part of the time of the
default search. What may be chosen of their candidates at a budget, with luck allowed for, is what the whole search
comes to at least, give or take chance (`python -m benchmarks.forecast`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from arachne.choose.budget import Budget
from arachne.choose.careful import select_carefully
from arachne.data.part import Part
from arachne.evidence.forecast import BUDGETS, LITTLE, MIN_NEGATIVES, SAID, Forecast, forecast, frequent_class
from arachne.model.backend import ModelBackend
from arachne.scoring.outcome import Baseline, Outcome
from arachne.search import Candidate, Pool, Problem, Searcher
from arachne.search.measured import MeasuredCandidate
from arachne.search.state import OnState, SearchState


@dataclass(eq=False)
class Outlook:
    """Watches a search, and forecasts once when its quick members are done.

    Attributes:
        problem: What is to be repaired.
        searcher: The search; only a pool has quick members.
        tell: Called with the forecast in words.
        forecast: The forecast, once it was made.
    """

    problem: Problem
    searcher: Searcher
    tell: Callable[[str], None]
    forecast: Forecast | None = field(default=None, init=False)

    def after(self, on_state: OnState) -> OnState:
        """Return a callback that looks at every state after another callback had it."""

        def call(state: SearchState) -> None:
            on_state(state)
            self.look(state)

        return call

    def look(self, state: SearchState) -> None:
        """Look at a state of the search."""
        if self.forecast is not None or not isinstance(self.searcher, Pool):
            return
        front = self.searcher.quick_front(self.problem, state)
        if front and len(self.problem.split.seen.negatives) >= MIN_NEGATIVES:
            self.forecast = forecast_from(self.problem, front)
            self.tell(self.forecast.sentence)


def forecast_from(problem: Problem, front: Sequence[Candidate]) -> Forecast:
    """Forecast what share of the negatives a search repairs at several budgets, from some of its candidates."""
    part = problem.split.seen
    baseline, points = Baseline.of(part), []
    for candidate in front:
        if candidate.held_back is not None and problem.rows is not None:
            right = baseline.right.copy()
            right[problem.rows] = candidate.held_back[: len(problem.rows)]
            outcome = Outcome(baseline, right)
            points.append(
                MeasuredCandidate(candidate, candidate.changed_weights, candidate.size, outcome, out_of_fold=outcome)
            )
    repairing = [number for number, point in enumerate(points) if point.seen.repair.count]
    reach = []
    for budget in BUDGETS:
        index, _, luck = select_carefully(points, repairing, Budget(budget), None)
        reach.append(0.0 if index is None else max(0.0, points[index].seen.repair.value - luck.repair))
    shares = tuple(np.maximum.accumulate(reach).tolist())
    alike = shares[BUDGETS.index(SAID[0])] < LITTLE and look_alike(problem.backend, part)
    return Forecast(len(part.negatives), shares, frequent_class(part), searched=True, look_alike=alike)


def look_alike(backend: ModelBackend, part: Part) -> bool:
    """Tell whether the last layer hardly tells the targets' inputs from right ones; a known cause tells them apart."""
    if any(target.membership is not None for target in part.targets):
        return False
    by_features = forecast(backend, part)
    return by_features is not None and by_features.look_alike
