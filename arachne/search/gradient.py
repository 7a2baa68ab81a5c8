"""Gradient steps on some weights, cross-fitted: what keep, the last layer and the class biases have in common.

The inputs fall into folds. For each fold the search runs over the others, from the original weights on, and its path is
kept at a few points. A point's patch is the mean of that point over all folds; what it does is counted fold by fold on
the inputs that its own run never looked at. So every seen input both teaches the patch and judges it, and the counts
are as honest as those of inputs that were held back from everybody.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from arachne.backend import Pull
from arachne.errors import UsageError
from arachne.options import option
from arachne.search.base import Problem, Searcher
from arachne.search.folds import Batch, draw_batch, fold_numbers
from arachne.search.influence import influence_scale, rounded_scale
from arachne.search.state import Candidate, Generation, SearchResult, SearchState
from arachne.search.tunable import BehindCut
from arachne.values import Array

EVERY = 8
"""Steps from one point of the path to the next."""

SHRUNK = (1.0, 0.75, 0.5)
"""Each point is also tried with smaller changes."""

RATE, WARM_UP = 0.05, 16
"""How far a step goes, in units of the scale, and after how many steps it goes that far."""

BEHIND_CUT = 200
"""How many negatives, and positives, a costly step looks at."""

GRID = 64.0
"""Changes are whole numbers of 1 / GRID of the scale, so that rounding in another framework gives the same patch."""


@dataclass(frozen=True, kw_only=True)
class GradientSearch(Searcher):
    """A path of gradient steps along which the negatives count ever more against the positives.

    Attributes:
        steps: How many gradient steps each run takes.
        folds: Into how many folds the inputs fall.
        batch: How many negatives, and how many positives, one step looks at; more are drawn anew for each step. Where
            a step runs more of the model than dense layers, at most `BEHIND_CUT` of each.
        step_size: What steps of a weight are measured in: its layer's `influence` on margins, or the `deviation` of
            its layer's weights.
    """

    LOCALISER = "contrast"
    CROSS_FITS = True

    steps: int = option(128, "Gradient steps of each run.", least=EVERY)
    folds: int = option(4, "Runs, each over all seen inputs but a share of them.", least=2)
    batch: int = option(1000, "Negatives, and positives, that one step looks at.", least=1)
    step_size: str = option("influence", "What a step is measured in.", choices=("influence", "deviation"))

    @property
    def most_generations(self) -> int:
        return self.folds * self._points

    @property
    def _points(self) -> int:
        return self.steps // EVERY

    def over(self, problem: Problem) -> Problem:
        """The problem over the weights that this search changes."""
        return problem

    @abstractmethod
    def pull(self, problem: Problem, batch: Batch, progress: float) -> Pull:
        """The loss of one step; `progress` goes from 0 at the first to 1 at the last."""

    def begin(self, problem: Problem, *, rng: np.random.Generator) -> SearchState:
        if not problem.backend.SUPPORTS_GRADIENTS:
            raise UsageError(
                f"backend '{problem.backend.NAME}' has no gradients, so the search '{self.name}' cannot run"
            )
        problem = self.over(problem)
        k, n = len(problem.suspects), len(problem.fitness_inputs)
        arrays = {
            "folds": fold_numbers(problem, self.folds, rng=rng),
            "scale": rounded_scale(self._scale(problem, rng=rng)),
            "path": np.zeros((self._points, k)),
            "right": np.zeros((self._points * len(SHRUNK), n), bool),
            **_at_the_start(k),
        }
        fitness = float(problem.fitness_inputs.weights @ problem.originally_right)
        return SearchState(arrays, {"fold": 0, "point": 0}, (Generation(0, fitness, 0, 0, 0, 0),))

    def step(self, problem: Problem, state: SearchState, *, rng: np.random.Generator) -> SearchState:
        """Go from one point of a run's path to the next, and judge it on the inputs that the run does not see."""
        problem = self.over(problem)
        fold, point = int(state.values["fold"] or 0), int(state.values["point"] or 0)
        moving = self._walked(problem, state, fold, point, rng=rng)
        folds, path, right = state.arrays["folds"], state.arrays["path"].copy(), state.arrays["right"].copy()
        path[point] += moving["change"] / self.folds
        aside = np.flatnonzero(folds == fold)
        for place, share in enumerate(SHRUNK):
            values = problem.suspects.values + share * moving["change"] * state.arrays["scale"]
            predicted = np.argmax(problem.tunable.scores(values, aside), axis=1)
            right[point * len(SHRUNK) + place, aside] = predicted == problem.fitness_inputs.labels[aside]
        at = self._generation(problem, state.history[-1], right, folds <= fold)
        point += 1
        if point == self._points:
            fold, point, moving = fold + 1, 0, _at_the_start(len(problem.suspects))
        stopped = f"all {self.folds} runs are done" if fold == self.folds else None
        arrays = {**state.arrays, "path": path, "right": right, **moving}
        return SearchState(arrays, {"fold": fold, "point": point}, (*state.history, at), stopped)

    def result(self, problem: Problem, state: SearchState) -> SearchResult:
        problem = self.over(problem)
        suspects, scale, right = problem.suspects, state.arrays["scale"], state.arrays["right"]
        done = int(state.values["fold"] or 0)
        original = problem.fitness_inputs.deficits_by_term(problem.original_scores)
        front = []
        for number in not_beaten(*outcomes(problem, right)) if done == self.folds else []:
            change = np.rint(GRID * SHRUNK[number % len(SHRUNK)] * state.arrays["path"][number // len(SHRUNK)]) / GRID
            values = problem.stored(suspects.values + change * scale)
            front.append(problem.tuned(Candidate(suspects.addresses, values, None, self.name, right[number])))
        nothing = Candidate(suspects.addresses, suspects.values, original, self.name, problem.originally_right)
        totals = [int(one.deficits.sum()) for one in front if one.deficits is not None]
        best = int(np.argmin(totals)) if totals and min(totals) < int(original.sum()) else 0
        return problem.result(state, *(front or [nothing]), original=original, chosen=best)

    def _walked(
        self, problem: Problem, state: SearchState, fold: int, point: int, *, rng: np.random.Generator
    ) -> dict[str, Array]:
        """The change and both moments of it after the next `EVERY` gradient steps."""
        moving = {name: state.arrays[name].copy() for name in _at_the_start(0)}
        change, scale = moving["change"], state.arrays["scale"]
        rate = RATE * min(1.0, (1000 / len(change)) ** 0.5)
        most = min(self.batch, BEHIND_CUT) if isinstance(problem.tunable, BehindCut) else self.batch
        for number in range(point * EVERY, (point + 1) * EVERY):
            batch = draw_batch(problem, state.arrays["folds"] != fold, most, rng=rng)
            pull = self.pull(problem, batch, number / max(1, self.steps - 1))
            values = problem.suspects.values + change * scale
            slope = problem.tunable.gradients(values, pull, batch.rows) * scale
            change -= rate * _adam(moving["first"], moving["second"], slope, number + 1)
        return moving

    def _scale(self, problem: Problem, *, rng: np.random.Generator) -> Array:
        if self.step_size == "deviation":
            return problem.suspects.deviations
        return influence_scale(problem, rng=rng)

    def _generation(self, problem: Problem, last: Generation, right: Array, judged: Array) -> Generation:
        """The best point so far, counted on the inputs that were judged."""
        repaired, broken = outcomes(problem, right[:, judged], judged)
        fitness = problem.fitness_inputs.weights[judged] @ right[:, judged].T
        best = int(np.argmax(fitness))
        evaluations = last.evaluations + EVERY + len(SHRUNK)
        return Generation(last.number + 1, float(fitness[best]), int(repaired[best]), int(broken[best]), evaluations, 0)


def outcomes(problem: Problem, right: Array, rows: Array | slice = slice(None)) -> tuple[Array, Array]:
    """How many negatives each point repairs and how many positives it breaks, from `right` `(points, rows)`."""
    negative, positive = (problem.fitness_inputs.of_kind(kind)[rows] for kind in ("negative", "positive"))
    return right[:, negative].sum(axis=1), (~right[:, positive]).sum(axis=1)


def not_beaten(repaired: Array, broken: Array) -> list[int]:
    """Points that no other beats in both: fewest broken first, each with more repaired than the ones before it."""
    kept: list[int] = []
    for number in np.lexsort((-repaired, broken)).tolist():
        if repaired[number] > (repaired[kept[-1]] if kept else 0):
            kept.append(number)
    return kept


def _at_the_start(k: int) -> dict[str, Array]:
    return {name: np.zeros(k) for name in ("change", "first", "second")}


def _adam(first: Array, second: Array, slope: Array, number: int) -> Array:
    """The direction of Adam's step `number`, with a warm-up; both moments are changed in place."""
    first += 0.1 * (slope - first)
    second += 0.05 * (slope * slope - second)
    wide = np.sqrt(second / (1 - 0.95**number)) + 1e-12
    step: Array = min(1.0, number / WARM_UP) * (first / (1 - 0.9**number)) / wide
    return step
