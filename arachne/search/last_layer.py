"""Fine-tuning of the last layer, the simplest repair that anybody would try first; a member of the pool.

It follows a path from "change nothing" to "repair whatever it takes", as margin search does, and is judged in the same
way, so a front shows whether a repair needed more than this.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from arachne.decisions.losses import probabilities
from arachne.model.backend import LossGradient
from arachne.model.values import Array
from arachne.search.folds import Batch
from arachne.search.gradient import GradientSearch
from arachne.search.margin import FIRST_STIFFNESS, LAST_STIFFNESS
from arachne.search.problem import Problem
from arachne.search.weight_choice import last_layer


@dataclass(frozen=True, kw_only=True)
class LastLayer(GradientSearch):
    """Fine-tuning of the last layer that keeps the scores of the positives.

    The loss of a step is (cross-entropy of the negatives + lambda * KL divergence of the positives from the original
    model) / (1 + lambda); lambda falls along the path.
    """

    name = "last-layer"

    USES_ALPHA = False

    def select_weights(self, problem: Problem) -> Problem:
        return problem.with_selection("last layer", lambda: last_layer(problem))

    def loss_gradient(self, problem: Problem, batch: Batch, progress: float) -> LossGradient:
        stiffness = FIRST_STIFFNESS * (LAST_STIFFNESS / FIRST_STIFFNESS) ** progress
        wanted = probabilities(batch.before)
        negatives = np.flatnonzero(batch.negative)
        wanted[negatives] = 0
        wanted[negatives, batch.labels[negatives]] = 1
        weights = (np.where(batch.negative, 1.0, stiffness) * batch.shares / (1 + stiffness)).astype(np.float32)
        return partial(_away_from, wanted, weights)


def _away_from(wanted: Array, weights: Array, scores: Array, rows: slice) -> Array:
    """Return the gradient of cross-entropy to the wanted probabilities `(n, classes)`, weighted by input `(n,)`."""
    gradient: Array = (probabilities(scores) - wanted[rows]) * weights[rows, None]
    return gradient
