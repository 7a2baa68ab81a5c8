"""Low rank: train only a layer's response to the directions in which a fault enters it.

    v_j = R m_j / √(m_jᵀ R m_j)  for the differences m_j of classes (`arachne.search.shifts`)      z' = z + U Vᵀ h

V is fixed; U starts at zero and is trained by the margin loss (`arachne.search.margin`). How far every input goes along
V is computed once, so that a step costs little even in wide layers. A point is judged by runs without a fold each, and
its patch is their mean, cut to a few directions. Each run has a V of its own: where they agree so little that their
mean repairs fewer of all negatives than each run of those it never saw, the patch is that of a run over all inputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from arachne.errors import UsageError
from arachne.model.values import Array
from arachne.plugins.options import option
from arachne.scoring.base import Scorer
from arachne.search.cross_fit import CHANGE_SHARES, outcomes, pareto
from arachne.search.direction_search import DirectionSearch, Material
from arachne.search.directions import cut_rank, find_directions, on_grid, whiten_each
from arachne.search.effort import path_passes, share_behind, share_of_rows, steps_run_model
from arachne.search.folds import draw_batch, draw_rows, rows_by_kind
from arachne.search.gradient import (
    MAX_BATCH_BEHIND_CUT,
    STEP_RATE,
    STEPS_PER_POINT,
    take_adam_step,
)
from arachne.search.influence import draw_signs, layer_scale, rounded_scale
from arachne.search.margin import margin_loss
from arachne.search.problem import Problem
from arachne.search.state import SearchState

GRID = 64.0
"""U is whole numbers of 1 / GRID of its scale, so that rounding in another framework gives the same patch."""

MAX_RANK, LOST_SHARE = 16, 0.01
"""The most directions of a patch, and the share of what it does to inputs, in squares, that is lost by having fewer."""

DEEP_RANK, DEEP_SHARE = 4, 2
"""The directions that are trained, and the share of steps taken, where a step runs the model."""


@dataclass(frozen=True, kw_only=True)
class LowRank(DirectionSearch):
    """Trains a layer's response to the directions in which a fault enters it.

    Attributes:
        steps: The number of gradient steps of each run.
        batch: The largest number of negatives, and of positives, that one step uses; each step draws them anew.
        deep_share: Where a step runs a part of the model, there is one for so many elsewhere, and it is as much longer.
    """

    name = "low-rank"

    DRAWS_ALIKE = True

    KEPT_BY_THE_MEAN: ClassVar[float] = 0.85
    """Each run has directions of its own, and their mean breaks fewer inputs than the runs it was judged by: 0.84 of
    them, over 139 candidates for the study's deciding faults, where other searchers had 0.90 to 1."""

    steps: int = option(128, "Gradient steps of each run.", least=STEPS_PER_POINT)
    batch: int = option(400, "Negatives, and positives, that one step looks at.", least=1)
    deep_share: int = option(DEEP_SHARE, "Of the steps, one in this many is taken where it runs the model.", least=1)

    def passes(self, problem: Problem) -> float:
        total = 0.0
        for info in (site.info for site in self.sites(problem)):
            if behind := share_behind(problem, [info.name]):
                steps, most = self._steps(near=problem.is_near(info), cheap=False)
                rows = share_of_rows(problem, most, self.folds) if steps_run_model(problem, [info.name]) else 0.0
                points = len(CHANGE_SHARES) * (steps // STEPS_PER_POINT)
                total += path_passes(problem, steps, self.folds, points, behind=behind, rows=rows, runs=self.folds)
        return total

    def within(self, problem: Problem, most: float) -> Self | None:
        variants = (replace(self, deep_share=self.deep_share * 2**times) for times in range(3))
        return next((one for one in variants if one.passes(problem) <= most), None)

    def begin(self, problem: Problem, *, rng: np.random.Generator) -> SearchState:
        if not problem.backend.SUPPORTS_GRADIENTS:
            raise UsageError(f"backend '{problem.backend.NAME}' has no gradients, so the search 'low-rank' cannot run")
        return super().begin(problem, rng=rng)

    def fit(
        self, problem: Problem, material: Material, fold: int, *, rng: np.random.Generator
    ) -> tuple[dict[str, Array], Array]:
        """Train U without a fold; every few steps are a point, tried with some shares of its change."""
        aside = material.rows_in(fold)
        scorer, found = self._train(problem, material, fold, rng=rng)
        scores = (scorer.scores(share * one.ravel(), aside) for one in found["left"] for share in CHANGE_SHARES)
        right = np.stack([problem.fitness_inputs.correct(one, aside) for one in scores])
        return (found if fold else {**found, "sizes": material.moments.sizes}), right

    def skip_fit(self, problem: Problem, material: Material, fold: int, *, rng: np.random.Generator) -> None:
        for _ in draw_signs(problem, rng=rng):
            pass
        by_kind, (steps, most) = rows_by_kind(problem, material.folds != fold), self._steps_in(material)
        for _ in range(steps):
            draw_rows(by_kind, most, rng=rng)

    def fit_all(
        self, problem: Problem, material: Material, found: Mapping[str, Array], *, rng: np.random.Generator
    ) -> dict[str, Array]:
        """Train on all inputs, if the mean of the runs repairs fewer negatives than they do of those they never saw."""
        negatives = np.flatnonzero(problem.fitness_inputs.of_kind("negative"))
        scorer, promised, repaired = None, 0, 0
        for point in pareto(*outcomes(problem, found["judged"])):
            number, at = divmod(point, len(CHANGE_SHARES))
            left, right = self._mean(found, number)
            scorer = scorer or problem.low_rank_scorer(material.info.name, material.inputs.parameter, right)
            scores = scorer.scores(CHANGE_SHARES[at] * left.ravel(), negatives)
            promised += int(found["judged"][point, negatives].sum())
            repaired += int(problem.fitness_inputs.correct(scores, negatives).sum())
        return {} if repaired >= promised else self._train(problem, material, -1, rng=rng)[1]

    def _train(
        self, problem: Problem, material: Material, without: int, *, rng: np.random.Generator
    ) -> tuple[Scorer, dict[str, Array]]:
        """Train U without a fold; return what scores it, U after every few steps `(points, out, r)` and V `(in, r)`."""
        detectors = on_grid(_detectors(material, without))
        scorer = problem.low_rank_scorer(material.info.name, material.inputs.parameter, detectors)
        size = len(material.weight) * detectors.shape[1]
        change, first, second = np.zeros((3, size))
        scale = float(rounded_scale(np.array([layer_scale(problem, scorer, change, rng=rng)]))[0])
        rate = STEP_RATE * min(1.0, (1000 / size) ** 0.5) * max(1.0, (300 / size) ** 0.5)
        rate *= 1.0 if material.is_cheap else self.deep_share / DEEP_SHARE
        steps, most = self._steps_in(material)
        by_kind, path = rows_by_kind(problem, material.folds != without), []
        for number in range(steps):
            batch = draw_batch(problem, by_kind, most, rng=rng)
            loss = margin_loss(problem, batch, number / max(1, steps - 1))
            slope = scorer.gradients(change * scale, loss, batch.rows) * scale
            change -= rate * take_adam_step(first, second, slope, number + 1)
            if (number + 1) % STEPS_PER_POINT == 0:
                path.append((np.rint(GRID * change) / GRID * scale).astype(np.float32))
        lefts = np.stack(path).reshape(len(path), len(material.weight), -1)
        return scorer, {"left": lefts, "right": detectors}

    def _steps_in(self, material: Material) -> tuple[int, int]:
        return self._steps(near=material.is_near, cheap=material.is_cheap)

    def _steps(self, *, near: bool, cheap: bool) -> tuple[int, int]:
        """Return the number of steps in a layer, and the most negatives, and positives, that each of them uses."""
        if cheap:
            return self.steps, self.batch
        if near:
            return max(STEPS_PER_POINT, self.steps * DEEP_SHARE // self.deep_share), self.batch
        return max(STEPS_PER_POINT, self.steps // self.deep_share), min(self.batch, MAX_BATCH_BEHIND_CUT)

    def change(self, found: Mapping[str, Array], point: int) -> tuple[Array, Array]:
        number, at = divmod(point, len(CHANGE_SHARES))
        left, right = (found["left"][number], found["right"]) if "left" in found else self._mean(found, number)
        return cut_rank(CHANGE_SHARES[at] * left, right, found["sizes 0"], MAX_RANK, LOST_SHARE)

    def _mean(self, found: Mapping[str, Array], number: int) -> tuple[Array, Array]:
        """Return the mean of the runs at a point, `(out, r)` and `(in, r)`."""
        left = np.hstack([found[f"left {fold}"][number] / self.folds for fold in range(self.folds)])
        return left, np.hstack([found[f"right {fold}"] for fold in range(self.folds)])


def _detectors(material: Material, without: int) -> Array:
    """Return V, float64 `(in, r)`, r at least 1."""
    differences = np.hstack([material.shifts.own(without), material.shifts.read_as(without)])
    columns, whitened = material.whiten(differences, without)
    near = material.is_near
    found = whiten_each(columns, whitened) if near else find_directions(columns, whitened, DEEP_RANK)[1]
    return found if found.shape[1] else np.zeros((material.weight.shape[1], 1))
