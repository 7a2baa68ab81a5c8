"""Gradient steps on some weights, cross-fitted: what keep, the last layer and the class biases have in common."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from arachne.backend import Pull
from arachne.options import option
from arachne.search.base import Problem
from arachne.search.cross_fit import CrossFitted
from arachne.search.folds import Batch, draw_batch, rows_by_kind
from arachne.search.influence import influence_scale
from arachne.search.state import SearchState
from arachne.search.tunable import BehindCut
from arachne.values import Array

EVERY = 8
"""Steps from one point of the path to the next."""

RATE, WARM_UP = 0.05, 16
"""How far a step goes, in units of the scale, and after how many steps it goes that far."""

MOVING = ("change", "first", "second")
"""What a run carries from step to step: how far the weights have gone, and the two moments of Adam."""

BEHIND_CUT = 200
"""How many negatives, and positives, a costly step looks at."""


@dataclass(frozen=True, kw_only=True)
class GradientSearch(CrossFitted):
    """A path of gradient steps along which the negatives count ever more against the positives.

    Attributes:
        steps: How many gradient steps each run takes.
        batch: How many negatives, and how many positives, one step looks at; more are drawn anew for each step. Where
            a step runs more of the model than dense layers, at most `BEHIND_CUT` of each.
        step_size: What steps of a weight are measured in: its layer's `influence` on margins, or the `deviation` of
            its layer's weights.
    """

    EVERY: ClassVar[int] = EVERY

    steps: int = option(128, "Gradient steps of each run.", least=EVERY)
    batch: int = option(1000, "Negatives, and positives, that one step looks at.", least=1)
    step_size: str = option("influence", "What a step is measured in.", choices=("influence", "deviation"))

    @property
    def points(self) -> int:
        return -(-self.steps // self.EVERY)

    @abstractmethod
    def pull(self, problem: Problem, batch: Batch, progress: float) -> Pull:
        """The loss of one step; `progress` goes from 0 at the first to 1 at the last."""

    def scale(self, problem: Problem, *, rng: np.random.Generator) -> Array:
        if self.step_size == "deviation":
            return problem.suspects.deviations
        return influence_scale(problem, rng=rng)

    def at_the_start(self, problem: Problem, scale: Array) -> dict[str, Array]:
        return {name: np.zeros(len(scale)) for name in MOVING}

    def moved(
        self, problem: Problem, state: SearchState, fold: int, point: int, *, rng: np.random.Generator
    ) -> tuple[dict[str, Array], int]:
        """The change and both moments of it after the next `EVERY` gradient steps."""
        moving = {name: state.arrays[name].copy() for name in MOVING}
        change, scale = moving["change"], state.arrays["scale"]
        rate = RATE * min(1.0, (1000 / len(change)) ** 0.5)
        most = min(self.batch, BEHIND_CUT) if isinstance(problem.tunable, BehindCut) else self.batch
        numbers = range(point * self.EVERY, min(self.steps, (point + 1) * self.EVERY))
        by_kind = rows_by_kind(problem, state.arrays["folds"] != fold)
        for number in numbers:
            batch = draw_batch(problem, by_kind, most, rng=rng)
            pull = self.pull(problem, batch, number / max(1, self.steps - 1))
            values = problem.suspects.values + change * scale
            slope = problem.tunable.gradients(values, pull, batch.rows) * scale
            change -= rate * _adam(moving["first"], moving["second"], slope, number + 1)
        return moving, len(numbers)


def _adam(first: Array, second: Array, slope: Array, number: int) -> Array:
    """The direction of Adam's step `number`, with a warm-up; both moments are changed in place."""
    first += 0.1 * (slope - first)
    second += 0.05 * (slope * slope - second)
    wide = np.sqrt(second / (1 - 0.95**number)) + 1e-12
    step: Array = min(1.0, number / WARM_UP) * (first / (1 - 0.9**number)) / wide
    return step
