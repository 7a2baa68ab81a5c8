"""Cross-fitted paths: the common base of the gradient searches and of the fits in closed form.

The inputs are divided into folds. For each fold the search runs over the others, starting from the original weights,
and records its path at a few points. A point's patch is the mean of that point over all folds; its outcome is counted
fold by fold on the inputs that the fold's run never used. So every seen input both fits the patch and judges it, and
the counts are as unbiased as those of inputs that no run has seen.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np

from arachne.errors import UsageError
from arachne.model.values import Array
from arachne.plugins.options import option
from arachne.search.ahead import Runs, ahead_of, copy_generator
from arachne.search.base import Searcher
from arachne.search.folds import fold_numbers
from arachne.search.influence import rounded_scale
from arachne.search.problem import Problem
from arachne.search.state import Candidate, Generation, SearchResult, SearchState

CHANGE_SHARES = (1.0, 0.75, 0.5)
"""Every point is measured with these shares of its change."""


@dataclass(frozen=True, kw_only=True)
class CrossFitted(Searcher):
    """A search that follows a path once for each fold, and returns the mean of these runs.

    Attributes:
        folds: The number of folds.
    """

    LOCALISER = "contrast"
    CROSS_FITS = True
    LOOKS_AT_TAIL = True

    GRID: ClassVar[float] = 64.0
    """Changes are whole numbers of 1 / GRID of the scale, so that rounding in another framework gives the same
    patch."""

    DRAWS_ALIKE: ClassVar[bool] = False
    """Whether a run draws the same random numbers whatever it computes, and `skip_run` draws them; other processes may
    then begin with later runs."""

    folds: int = option(4, "Runs, each over all seen inputs but a share of them.", least=2)

    @property
    def most_generations(self) -> int:
        return self.folds * self.points

    @property
    @abstractmethod
    def points(self) -> int:
        """The number of points recorded along a path."""

    def select_weights(self, problem: Problem) -> Problem:
        """Return the problem over the weights that this search changes."""
        return problem

    @abstractmethod
    def scale(self, problem: Problem, *, rng: np.random.Generator) -> Array:
        """Return the unit in which the change of each weight is measured, float64 `(k,)`."""

    @abstractmethod
    def initial(self, problem: Problem, scale: Array) -> dict[str, Array]:
        """Return a run's arrays before its first point; `change` `(k,)`, in units of the scale, is usually zero."""

    @abstractmethod
    def advance(
        self, problem: Problem, state: SearchState, fold: int, point: int, *, rng: np.random.Generator
    ) -> tuple[dict[str, Array], int]:
        """Advance the run that holds out `fold` to its next point; return its arrays and the evaluations used."""

    def skip_run(self, problem: Problem, state: SearchState, fold: int, *, rng: np.random.Generator) -> None:
        """Draw the random numbers of the run that holds out `fold`, and do nothing else; called if `DRAWS_ALIKE`."""

    def begin(self, problem: Problem, *, rng: np.random.Generator) -> SearchState:
        if not problem.backend.SUPPORTS_GRADIENTS:
            raise UsageError(
                f"backend '{problem.backend.NAME}' has no gradients, so the search '{self.name}' cannot run"
            )
        problem = self.select_weights(problem)
        k, n = len(problem.suspects), len(problem.fitness_inputs)
        folds = fold_numbers(problem, self.folds, rng=rng)
        scale = rounded_scale(self.scale(problem, rng=rng))
        arrays = {
            "folds": folds,
            "scale": scale,
            "path": np.zeros((self.points, k)),
            "right": np.zeros((self.points * len(CHANGE_SHARES), n), bool),
            **self.initial(problem, scale),
        }
        fitness = float(problem.fitness_inputs.weights @ problem.originally_right)
        return SearchState(arrays, {"fold": 0, "point": 0}, (Generation(0, fitness, 0, 0, 0, 0),))

    def step(self, problem: Problem, state: SearchState, *, rng: np.random.Generator) -> SearchState:
        """Advance a run to its next point, and count the point's outcome on the inputs that the run holds out."""
        problem = self.select_weights(problem)
        fold, point = _at(state)
        carried, evaluations, judged = self._reach(problem, state, fold, point, rng=rng)
        folds, path, right = state.arrays["folds"], state.arrays["path"].copy(), state.arrays["right"].copy()
        path[point] += carried["change"] / self.folds
        shares = len(CHANGE_SHARES)
        right[point * shares : (point + 1) * shares, folds == fold] = judged
        at = _generation(problem, state.history[-1], right, folds <= fold, evaluations + len(CHANGE_SHARES))
        point += 1
        if point == self.points:
            fold, point, carried = fold + 1, 0, self.initial(problem, state.arrays["scale"])
        stopped = f"all {self.folds} runs are done" if fold == self.folds else None
        arrays = {**state.arrays, "path": path, "right": right, **carried}
        return SearchState(arrays, {"fold": fold, "point": point}, (*state.history, at), stopped)

    def _reach(
        self, problem: Problem, state: SearchState, fold: int, point: int, *, rng: np.random.Generator
    ) -> tuple[dict[str, Array], int, Array]:
        """Return a run's next point as `_compute_point` does; another process may have computed it."""
        ahead, name = ahead_of(problem), self.name
        found: tuple[dict[str, Array], int, Array] | None = ahead.take(name, fold, name, rng=rng)
        if found is not None:
            return found
        before = copy_generator(rng)
        with ahead.timing(name, 1 / self.points):
            found = self._compute_point(problem, state, fold, point, rng=rng)
        ahead.give(name, fold, before.bit_generator.state, found, rng=rng)
        others = not point and fold + 1 < self.folds and self.DRAWS_ALIKE and problem.steps_in_numpy
        if others and not ahead.is_shared(name, fold + 1):
            compute, skip = partial(self._compute_run, problem, state), partial(self.skip_run, problem, state)
            ahead.share(name, name, range(fold, self.folds), Runs(compute, skip), rng=before)
        return found

    def _compute_point(
        self, problem: Problem, state: SearchState, fold: int, point: int, *, rng: np.random.Generator
    ) -> tuple[dict[str, Array], int, Array]:
        """Advance a run to its next point, and judge that on the inputs it holds out.

        Returns:
            As `advance` does, and which of these inputs are right with each share of the change,
            bool `(shares, inputs)`.
        """
        carried, evaluations = self.advance(problem, state, fold, point, rng=rng)
        aside, judged = np.flatnonzero(state.arrays["folds"] == fold), []
        for share in CHANGE_SHARES:
            values = problem.suspects.values + share * carried["change"] * state.arrays["scale"]
            judged.append(problem.fitness_inputs.correct(problem.scorer.scores(values, aside), aside))
        return carried, evaluations, np.stack(judged)

    def _compute_run(
        self, problem: Problem, state: SearchState, fold: int, *, rng: np.random.Generator
    ) -> Iterator[tuple[dict[str, Array], int, Array]]:
        """Give the points of a run, one by one."""
        carried = self.initial(problem, state.arrays["scale"])
        for point in range(self.points):
            reached = self._compute_point(
                problem, replace(state, arrays={**state.arrays, **carried}), fold, point, rng=rng
            )
            carried = reached[0]
            yield reached

    def result(self, problem: Problem, state: SearchState) -> SearchResult:
        problem = self.select_weights(problem)
        suspects, scale, right = problem.suspects, state.arrays["scale"], state.arrays["right"]
        done = _at(state)[0] == self.folds
        runs, judged = self._progress(state)
        original = problem.fitness_inputs.deficits_by_term(problem.original_scores)
        front = []
        costs = problem.objective_costs(right) if done and problem.has_objective else None
        for number in select_front(problem, right[:, judged], judged, costs):
            point, share_number = divmod(number, len(CHANGE_SHARES))
            mean = state.arrays["path"][point] * (self.folds / runs[point])
            change = np.rint(self.GRID * CHANGE_SHARES[share_number] * mean) / self.GRID
            values = problem.round_to_storage(suspects.values + change * scale)
            own = right[number] if done else None
            front.append(problem.score(Candidate(suspects, values, None, self.name, own)))
        nothing = Candidate(suspects, suspects.values, original, self.name, problem.originally_right)
        totals = [int(one.deficits.sum()) for one in front if one.deficits is not None]
        best = int(np.argmin(totals)) if totals and min(totals) < int(original.sum()) else 0
        return problem.result(state, *(front or [nothing]), original=original, chosen=best)

    def _progress(self, state: SearchState) -> tuple[Array, Array]:
        """Return how many runs have reached each point `(points,)`, and which inputs judge all of those points."""
        fold, point = _at(state)
        runs = fold + (np.arange(self.points) < point).astype(np.int64)
        return runs, np.asarray(state.arrays["folds"] < max(fold, 1))


def _at(state: SearchState) -> tuple[int, int]:
    """Return the fold and the point that come next."""
    return int(state.values["fold"] or 0), int(state.values["point"] or 0)


def _generation(problem: Problem, last: Generation, right: Array, judged: Array, evaluations: int) -> Generation:
    """Describe the best point so far, counted on the inputs that were judged."""
    repaired, broken = outcomes(problem, right[:, judged], judged)
    fitness = problem.fitness_inputs.weights[judged] @ right[:, judged].T
    best = int(np.argmax(fitness))
    counts = float(fitness[best]), int(repaired[best]), int(broken[best])
    return Generation(last.number + 1, *counts, last.evaluations + evaluations, 0)


def outcomes(problem: Problem, right: Array, rows: Array | slice = slice(None)) -> tuple[Array, Array]:
    """Count the negatives each point repairs and the positives it breaks, from `right` `(points, rows)`."""
    negative, positive = (problem.fitness_inputs.of_kind(kind)[rows] for kind in ("negative", "positive"))
    return right[:, negative].sum(axis=1), (~right[:, positive]).sum(axis=1)


def select_front(
    problem: Problem, right: Array, rows: Array | slice = slice(None), costs: Array | None = None
) -> list[int]:
    """Return the points on the Pareto front, from `right` `(points, rows)`; `costs` as for `pareto`.

    Where other errors count too, points that break no more than they fix on balance stay as well.
    """
    repaired, broken = outcomes(problem, right, rows)
    found = pareto(repaired, broken, costs)
    if not problem.counts_others:
        return found
    fixed = right[:, problem.fitness_inputs.of_kind("other")[rows]].sum(axis=1)
    return list(dict.fromkeys([*found, *pareto(repaired, broken - fixed)]))


def pareto(repaired: Array, broken: Array, costs: Array | None = None) -> list[int]:
    """Return the Pareto front: fewest broken first, each point with more repaired than the ones before it.

    With costs of an objective, a point also stays if it is fairer than every point with fewer broken.
    """
    found: list[int] = []
    most, least = 0, np.inf
    costs = np.full(len(repaired), np.inf) if costs is None else costs
    for number in np.lexsort((-repaired, costs, broken)).tolist():
        if repaired[number] > most or costs[number] < least:
            found.append(number)
            most, least = max(most, repaired[number]), min(least, costs[number])
    return found
