"""Cross-fitted paths: what the gradient searches and the fits in closed form have in common.

The inputs fall into folds. For each fold the search runs over the others, from the original weights on, and its path is
kept at a few points. A point's patch is the mean of that point over all folds; what it does is counted fold by fold on
the inputs that its own run never looked at. So every seen input both teaches the patch and judges it, and the counts
are as honest as those of inputs that were held back from everybody.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from arachne.errors import UsageError
from arachne.options import option
from arachne.search.base import Problem, Searcher
from arachne.search.folds import fold_numbers
from arachne.search.influence import rounded_scale
from arachne.search.state import Candidate, Generation, SearchResult, SearchState
from arachne.values import Array

SHRUNK = (1.0, 0.75, 0.5)
"""Each point is also tried with smaller changes."""


@dataclass(frozen=True, kw_only=True)
class CrossFitted(Searcher):
    """Runs along a path, one for each fold, and their mean.

    Attributes:
        folds: Into how many folds the inputs fall.
    """

    LOCALISER = "contrast"
    CROSS_FITS = True
    LOOKS_AT_TAIL = True

    GRID: ClassVar[float] = 64.0
    """Changes are whole numbers of 1 / GRID of the scale, so that rounding in another framework gives the same
    patch."""

    folds: int = option(4, "Runs, each over all seen inputs but a share of them.", least=2)

    @property
    def most_generations(self) -> int:
        return self.folds * self.points

    @property
    @abstractmethod
    def points(self) -> int:
        """How many points of a path are kept."""

    def over(self, problem: Problem) -> Problem:
        """The problem over the weights that this search changes."""
        return problem

    @abstractmethod
    def scale(self, problem: Problem, *, rng: np.random.Generator) -> Array:
        """What the change of each weight is measured in, float64 `(k,)`."""

    @abstractmethod
    def at_the_start(self, problem: Problem, scale: Array) -> dict[str, Array]:
        """What a run holds before its first point; `change` `(k,)`, in units of the scale, is mostly zero."""

    @abstractmethod
    def moved(
        self, problem: Problem, state: SearchState, fold: int, point: int, *, rng: np.random.Generator
    ) -> tuple[dict[str, Array], int]:
        """What a run that does not look at `fold` holds at its next point, and how many evaluations that took."""

    def begin(self, problem: Problem, *, rng: np.random.Generator) -> SearchState:
        if not problem.backend.SUPPORTS_GRADIENTS:
            raise UsageError(
                f"backend '{problem.backend.NAME}' has no gradients, so the search '{self.name}' cannot run"
            )
        problem = self.over(problem)
        k, n = len(problem.suspects), len(problem.fitness_inputs)
        folds = fold_numbers(problem, self.folds, rng=rng)
        scale = rounded_scale(self.scale(problem, rng=rng))
        arrays = {
            "folds": folds,
            "scale": scale,
            "path": np.zeros((self.points, k)),
            "right": np.zeros((self.points * len(SHRUNK), n), bool),
            **self.at_the_start(problem, scale),
        }
        fitness = float(problem.fitness_inputs.weights @ problem.originally_right)
        return SearchState(arrays, {"fold": 0, "point": 0}, (Generation(0, fitness, 0, 0, 0, 0),))

    def step(self, problem: Problem, state: SearchState, *, rng: np.random.Generator) -> SearchState:
        """Go from one point of a run's path to the next, and judge it on the inputs that the run does not see."""
        problem = self.over(problem)
        fold, point = _at(state)
        moving, evaluations = self.moved(problem, state, fold, point, rng=rng)
        folds, path, right = state.arrays["folds"], state.arrays["path"].copy(), state.arrays["right"].copy()
        path[point] += moving["change"] / self.folds
        aside = np.flatnonzero(folds == fold)
        for place, share in enumerate(SHRUNK):
            values = problem.suspects.values + share * moving["change"] * state.arrays["scale"]
            predicted = np.argmax(problem.tunable.scores(values, aside), axis=1)
            right[point * len(SHRUNK) + place, aside] = predicted == problem.fitness_inputs.labels[aside]
        at = _generation(problem, state.history[-1], right, folds <= fold, evaluations + len(SHRUNK))
        point += 1
        if point == self.points:
            fold, point, moving = fold + 1, 0, self.at_the_start(problem, state.arrays["scale"])
        stopped = f"all {self.folds} runs are done" if fold == self.folds else None
        arrays = {**state.arrays, "path": path, "right": right, **moving}
        return SearchState(arrays, {"fold": fold, "point": point}, (*state.history, at), stopped)

    def result(self, problem: Problem, state: SearchState) -> SearchResult:
        problem = self.over(problem)
        suspects, scale, right = problem.suspects, state.arrays["scale"], state.arrays["right"]
        done = _at(state)[0] == self.folds
        runs, judged = self._finished(state)
        original = problem.fitness_inputs.deficits_by_term(problem.original_scores)
        front = []
        costs = problem.costs(right) if done and problem.fair else None
        for number in not_beaten(*outcomes(problem, right[:, judged], judged), costs):
            point, place = divmod(number, len(SHRUNK))
            mean = state.arrays["path"][point] * (self.folds / runs[point])
            change = np.rint(self.GRID * SHRUNK[place] * mean) / self.GRID
            values = problem.stored(suspects.values + change * scale)
            own = right[number] if done else None
            front.append(problem.tuned(Candidate(suspects.addresses, values, None, self.name, own)))
        nothing = Candidate(suspects.addresses, suspects.values, original, self.name, problem.originally_right)
        totals = [int(one.deficits.sum()) for one in front if one.deficits is not None]
        best = int(np.argmin(totals)) if totals and min(totals) < int(original.sum()) else 0
        return problem.result(state, *(front or [nothing]), original=original, chosen=best)

    def _finished(self, state: SearchState) -> tuple[Array, Array]:
        """How many runs have reached each point `(points,)`, and which inputs all of those points were judged on."""
        fold, point = _at(state)
        runs = fold + (np.arange(self.points) < point).astype(np.int64)
        return runs, np.asarray(state.arrays["folds"] < max(fold, 1))


def _at(state: SearchState) -> tuple[int, int]:
    """The fold and the point that come next."""
    return int(state.values["fold"] or 0), int(state.values["point"] or 0)


def _generation(problem: Problem, last: Generation, right: Array, judged: Array, evaluations: int) -> Generation:
    """The best point so far, counted on the inputs that were judged."""
    repaired, broken = outcomes(problem, right[:, judged], judged)
    fitness = problem.fitness_inputs.weights[judged] @ right[:, judged].T
    best = int(np.argmax(fitness))
    counts = float(fitness[best]), int(repaired[best]), int(broken[best])
    return Generation(last.number + 1, *counts, last.evaluations + evaluations, 0)


def outcomes(problem: Problem, right: Array, rows: Array | slice = slice(None)) -> tuple[Array, Array]:
    """How many negatives each point repairs and how many positives it breaks, from `right` `(points, rows)`."""
    negative, positive = (problem.fitness_inputs.of_kind(kind)[rows] for kind in ("negative", "positive"))
    return right[:, negative].sum(axis=1), (~right[:, positive]).sum(axis=1)


def not_beaten(repaired: Array, broken: Array, costs: Array | None = None) -> list[int]:
    """Points that no other beats in both: fewest broken first, each with more repaired than the ones before it.

    Where costs of an objective are given, those stay too that are fairer than every one with fewer broken.
    """
    kept: list[int] = []
    most, least = 0, np.inf
    costs = np.full(len(repaired), np.inf) if costs is None else costs
    for number in np.lexsort((-repaired, costs, broken)).tolist():
        if repaired[number] > most or costs[number] < least:
            kept.append(number)
            most, least = max(most, repaired[number]), min(least, costs[number])
    return kept
