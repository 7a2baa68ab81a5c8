"""Margin search: gradient steps that move the negatives over the border and leave the positives where they are.

With margin the score of the true class minus the best other, margin_0 the original's, and unit the median margin_0 of
the positives, the loss of a step is

    (mean over negatives of relu(TARGET_MARGIN unit - margin) / unit
     + lambda * POSITIVE_WEIGHT * mean over positives of relu(guard - margin) / unit)
    / (1 + lambda)                          guard = min(margin_0, GUARD_MARGIN unit) - SLACK unit

A positive costs nothing while its margin is above its guard; where borders are crowded (regression), that is margin_0
less the slack. lambda falls from FIRST_STIFFNESS to LAST_STIFFNESS along the path, so its points lead from "break
nothing" to "repair whatever it takes".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from arachne.model.backend import LossGradient
from arachne.model.values import Array
from arachne.plugins.options import option
from arachne.search.folds import Batch
from arachne.search.gradient import STEPS_PER_POINT, GradientSearch
from arachne.search.problem import Problem
from arachne.search.weight_choice import CHOICES, wide_hidden_layers
from arachne.tasks import best_others

TARGET_MARGIN, GUARD_MARGIN, POSITIVE_WEIGHT = 0.2, 0.5, 10.0
FIRST_STIFFNESS, LAST_STIFFNESS = 300.0, 0.03

SLACK = 1e-4
"""How far below its guard a positive's margin may be: further than the last bits in which frameworks differ.

A weight that does not concern an input leaves its margin at margin_0; without slack, rounding would say on which side.
"""


@dataclass(frozen=True, kw_only=True)
class MarginSearch(GradientSearch):
    """Raises the margins of the negatives, and holds those of the positives above their guard.

    It changes the suspects; a subclass sets another selection of weights, and the number of steps that suits it.
    """

    name = "margin"

    USES_ALPHA = False

    WEIGHTS: ClassVar[str | None] = None
    """The selection of weights that it changes, a key of `CHOICES`; the suspects when None."""

    def select_weights(self, problem: Problem) -> Problem:
        if self.WEIGHTS is None:
            return problem
        choice = CHOICES[self.WEIGHTS]
        return problem.with_selection(self.name, lambda: choice(problem))

    def loss_gradient(self, problem: Problem, batch: Batch, progress: float) -> LossGradient:
        return margin_loss(problem, batch, progress)


def margin_loss(problem: Problem, batch: Batch, progress: float) -> LossGradient:
    """Return the gradient of the loss of one step; `progress` grows from 0 at the first step to 1 at the last."""
    unit = problem.margin_unit
    stiffness = FIRST_STIFFNESS * (LAST_STIFFNESS / FIRST_STIFFNESS) ** progress
    most = np.inf if problem.fitness_inputs.task.CROWDED else GUARD_MARGIN * unit
    guards = np.minimum(problem.original_margins[batch.rows], most) - SLACK * unit
    wanted = np.where(batch.negative, TARGET_MARGIN * unit, guards)
    weights = np.where(batch.negative, 1.0, stiffness * POSITIVE_WEIGHT) * batch.shares / (unit * (1 + stiffness))
    return partial(_short_of, batch.labels, wanted, weights)


def _short_of(labels: Array, wanted: Array, weights: Array, scores: Array, rows: slice) -> Array:
    """Return the gradient of a hinge loss on margins below the wanted ones, weighted by input; arguments `(n,)`."""
    each, own = np.arange(len(scores)), labels[rows]
    rivals = best_others(scores, own)
    short = scores[each, own] - scores[each, rivals] < wanted[rows]
    gradient = np.zeros_like(scores)
    gradient[each, rivals] = short * weights[rows]
    gradient[each, own] = -gradient[each, rivals]
    return gradient


@dataclass(frozen=True, kw_only=True)
class MarginHidden(MarginSearch):
    """Margin search in the hidden dense layers: it cuts out a cause that the last layer only passes on."""

    name = "margin@hidden"

    WEIGHTS = "hidden"


@dataclass(frozen=True, kw_only=True)
class MarginFisher(MarginSearch):
    """Margin search over the weights that the Fisher ratio ranks first, which hardly affect the positives."""

    name = "margin@fisher"

    WEIGHTS = "fisher"


@dataclass(frozen=True, kw_only=True)
class BiasShift(MarginSearch):
    """Margin search over the class biases: every input's score of a class moves by the same amount."""

    name = "bias"

    WEIGHTS = "class biases"


@dataclass(frozen=True, kw_only=True)
class MarginConv(MarginSearch):
    """Margin search in the last convolutions or recurrent layers, where textures, stickers and sensors leave traces.

    Every step runs the model from the first of these layers on, so there are fewer and smaller steps.
    """

    name = "margin@conv"

    WEIGHTS = "conv"

    steps: int = option(64, "Gradient steps of each run.", least=STEPS_PER_POINT)
    folds: int = option(3, "Runs, each over all seen inputs but a share of them.", least=2)


@dataclass(frozen=True, kw_only=True)
class MarginEmbeddings(MarginConv):
    """Margin search over word vectors: where a single word causes the mistake, its vector is wrong."""

    name = "margin@embeddings"

    WEIGHTS = "embeddings"

    steps: int = option(128, "Gradient steps of each run.", least=STEPS_PER_POINT)
    step_size: str = option("deviation", "What a step is measured in.", choices=("influence", "deviation"))

    def initial(self, problem: Problem, scale: Array) -> dict[str, Array]:
        """Start at the mean of all word vectors: where a single word decides, its own vector has no gradient."""
        start = super().initial(problem, scale)
        (slice_,) = problem.suspects.slices
        table = problem.backend.get_weights(slice_.layer)["weight"]
        means = table.mean(axis=0)[slice_.index[1]]
        start["change"] = np.divide(means - problem.suspects.values, scale, out=start["change"], where=scale > 0)
        return start


@dataclass(frozen=True, kw_only=True)
class MarginWide(MarginSearch):
    """Margin search over many more weights of wide hidden layers, in which a sticker or a trigger is spread out.

    A step there costs more, so there are fewer and smaller steps.

    Attributes:
        wide_weights: The number of weights it may change.
    """

    name = "margin@wide"

    steps: int = option(64, "Gradient steps of each run.", least=STEPS_PER_POINT)
    folds: int = option(3, "Runs, each over all seen inputs but a share of them.", least=2)
    batch: int = option(400, "Negatives, and positives, that one step looks at.", least=1)
    wide_weights: int = option(3000, "Weights of wide hidden layers it may change.", least=1)

    def select_weights(self, problem: Problem) -> Problem:
        count = self.wide_weights
        return problem.with_selection(f"{self.name} {count}", lambda: wide_hidden_layers(problem, count))
