"""Gradient steps on some weights, cross-fitted: the base of margin search and of last-layer training."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from arachne.model.backend import LossGradient
from arachne.model.values import Array
from arachne.plugins.options import option
from arachne.scoring.cut import CutScorer
from arachne.search.cross_fit import CHANGE_SHARES, CrossFitted
from arachne.search.effort import path_passes, share_behind, share_of_many, share_of_rows, steps_run_model
from arachne.search.folds import Batch, draw_batch, draw_rows, rows_by_kind
from arachne.search.influence import influence_scale
from arachne.search.problem import Problem
from arachne.search.state import SearchState
from arachne.weights.selection import Selection

STEPS_PER_POINT = 8
"""Gradient steps between two points of the path."""

STEP_RATE, WARM_UP_STEPS = 0.05, 16
"""The size of a step in units of the scale, and the number of steps over which it grows to that size."""

CARRIED_ARRAYS = ("change", "first", "second")
"""The arrays that a run carries from step to step: the change of the weights, and the two moments of Adam."""

MIN_STEPS, MAX_PACE = 16, 4.0
"""How few steps a run may be cut down to, and how much longer each of these may be for it."""

MAX_BATCH_BEHIND_CUT = 200
"""The largest batch of negatives, and of positives, of a step that runs more than dense layers."""


@dataclass(frozen=True, kw_only=True)
class GradientSearch(CrossFitted):
    """A path of gradient steps along which the weight of the negatives grows against that of the positives.

    Attributes:
        steps: The number of gradient steps of each run.
        batch: The largest number of negatives, and of positives, that one step uses; each step draws them anew. A step
            that runs more of the model than dense layers uses at most `MAX_BATCH_BEHIND_CUT` of each.
        step_size: The unit of a weight's steps: its layer's `influence` on margins, or the `deviation` of its layer's
            weights.
        pace: How much longer than usual a step is: fewer and longer steps cover the same ground.
    """

    STEPS_PER_POINT: ClassVar[int] = STEPS_PER_POINT

    DRAWS_ALIKE: ClassVar[bool] = True

    TRAINS_OTHERS: ClassVar[bool] = False
    """Whether steps use errors off the target too, where these count."""

    steps: int = option(128, "Gradient steps of each run.", least=STEPS_PER_POINT)
    batch: int = option(1000, "Negatives, and positives, that one step looks at.", least=1)
    step_size: str = option("influence", "What a step is measured in.", choices=("influence", "deviation"))
    pace: float = option(1.0, "How much longer than usual a step is.", least=0.01, most=100.0)

    def passes(self, problem: Problem) -> float:
        problem = self.select_weights(problem)
        behind, most = share_behind(problem, problem.suspects.layers), min(self.batch, MAX_BATCH_BEHIND_CUT)
        if problem.is_near_end or not behind:
            behind, most = behind or share_of_many(problem), self.batch
        runs = behind and steps_run_model(problem, problem.suspects.layers)
        rows = share_of_rows(problem, most, self.folds) if runs else 0.0
        points = len(CHANGE_SHARES) * self.points
        return path_passes(problem, self.steps, self.folds, points, behind=behind, rows=rows)

    def within(self, problem: Problem, most: float) -> Self | None:
        for folds in dict.fromkeys((self.folds, 2)):
            for steps in range(self.steps, min(MIN_STEPS, self.steps) - 1, -STEPS_PER_POINT):
                pace = self.pace * min(MAX_PACE, self.steps / steps)
                fewer = replace(self, steps=steps, folds=folds, pace=pace)
                if fewer.passes(problem) <= most:
                    return fewer
        return None

    @property
    def points(self) -> int:
        return -(-self.steps // self.STEPS_PER_POINT)

    @abstractmethod
    def loss_gradient(self, problem: Problem, batch: Batch, progress: float) -> LossGradient:
        """Return the gradient of one step's loss; `progress` grows from 0 at the first step to 1 at the last."""

    def length(self, progress: float) -> float:
        """Return how long a step is against the first ones; arguments as for `loss_gradient`."""
        return 1.0

    def gradient(
        self, problem: Problem, values: Array, batch: Batch, progress: float, *, rng: np.random.Generator
    ) -> Array:
        """Return the gradient of one step's loss at some values of the suspects, float64 `(k,)`."""
        return problem.scorer.gradients(values, self.loss_gradient(problem, batch, progress), batch.rows)

    def scale(self, problem: Problem, *, rng: np.random.Generator) -> Array:
        if self.step_size == "deviation":
            return problem.suspects.deviations
        return influence_scale(problem, rng=rng)

    def initial(self, problem: Problem, scale: Array) -> dict[str, Array]:
        return {name: np.zeros(len(scale)) for name in CARRIED_ARRAYS}

    def advance(
        self, problem: Problem, state: SearchState, fold: int, point: int, *, rng: np.random.Generator
    ) -> tuple[dict[str, Array], int]:
        """Take the next `STEPS_PER_POINT` gradient steps; return the change and both of its moments."""
        carried = {name: state.arrays[name].copy() for name in CARRIED_ARRAYS}
        scale = state.arrays["scale"]
        by_kind, most = self._batch_source(problem, state, fold)
        numbers = range(point * self.STEPS_PER_POINT, min(self.steps, (point + 1) * self.STEPS_PER_POINT))
        for number in numbers:
            batch = draw_batch(problem, by_kind, most, rng=rng)
            values, progress = problem.suspects.values + carried["change"] * scale, number / max(1, self.steps - 1)
            slope = self.gradient(problem, values, batch, progress, rng=rng) * scale
            self.take_step(carried, slope, number, progress)
            stay_in_range(problem.suspects, carried["change"], scale)
        return carried, len(numbers)

    def skip_run(self, problem: Problem, state: SearchState, fold: int, *, rng: np.random.Generator) -> None:
        by_kind, most = self._batch_source(problem, state, fold)
        for _ in range(self.steps):
            draw_rows(by_kind, most, rng=rng)

    def _batch_source(self, problem: Problem, state: SearchState, fold: int) -> tuple[tuple[Array, ...], int]:
        """Return what a run draws its batches from, by kind, and the most of each kind in a batch."""
        deep = isinstance(problem.scorer, CutScorer) and not problem.is_near_end
        most = min(self.batch, MAX_BATCH_BEHIND_CUT) if deep else self.batch
        return rows_by_kind(problem, state.arrays["folds"] != fold, others=self.TRAINS_OTHERS), most

    def take_step(self, carried: dict[str, Array], slope: Array, number: int, progress: float) -> None:
        """Take step `number` of a run along a slope `(k,)`; the change and both of its moments are changed in place."""
        rate = self.pace * STEP_RATE * self.length(progress) * min(1.0, (1000 / len(slope)) ** 0.5)
        carried["change"] -= rate * take_adam_step(carried["first"], carried["second"], slope, number + 1)


def stay_in_range(suspects: Selection, change: Array, scale: Array) -> None:
    """Cut a change `(k,)`, in place, where the model could not store as large a weight.

    The range of whole numbers ends at the largest weight of a layer or channel. A step is differentiated as if there
    was no end: without the cut, a search would rely on changes of which most is lost when they are rounded.
    """
    wanted = suspects.values + change * scale
    storable = suspects.clip(wanted)
    beyond = storable != wanted
    change[beyond] = (storable - suspects.values)[beyond] / scale[beyond]


def take_adam_step(first: Array, second: Array, slope: Array, number: int) -> Array:
    """Return the direction of Adam's step `number`, with a warm-up; both moments are changed in place."""
    first += 0.1 * (slope - first)
    second += 0.05 * (slope * slope - second)
    wide = np.sqrt(second / (1 - 0.95**number)) + 1e-12
    step: Array = min(1.0, number / WARM_UP_STEPS) * (first / (1 - 0.9**number)) / wide
    return step
