"""What anybody would try first: shifting class biases, and fine-tuning the last layer. Members of the pool.

Both walk a path from "change nothing" to "repair whatever it takes", as keep does, and are judged in the same way; so
a front shows whether a repair needed more than these.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from arachne.backend import Pull
from arachne.errors import UsageError
from arachne.losses import probabilities
from arachne.search.base import Problem
from arachne.search.folds import Batch
from arachne.search.gradient import GradientSearch
from arachne.search.keep import FIRM, LOOSE, Keep
from arachne.suspects import Suspects
from arachne.values import Address, Array


@dataclass(frozen=True, kw_only=True)
class BiasShift(Keep):
    """Keep on the class biases alone: every input's score of a class moves by the same amount."""

    name = "bias"

    def over(self, problem: Problem) -> Problem:
        return problem.elsewhere("class biases", lambda: last_layer(problem, ("bias",)))


@dataclass(frozen=True, kw_only=True)
class LastLayer(GradientSearch):
    """Fine-tuning of the last layer that holds on to what the model says of positives.

    The loss of a step is (cross-entropy of the negatives + lambda * KL divergence of the positives from the original
    model) / (1 + lambda); lambda falls along the path.
    """

    name = "last"

    def over(self, problem: Problem) -> Problem:
        return problem.elsewhere("last layer", lambda: last_layer(problem, ("weight", "bias")))

    def pull(self, problem: Problem, batch: Batch, progress: float) -> Pull:
        stiffness = FIRM * (LOOSE / FIRM) ** progress
        wanted = probabilities(batch.before)
        negatives = np.flatnonzero(batch.negative)
        wanted[negatives] = 0
        wanted[negatives, batch.labels[negatives]] = 1
        weights = (np.where(batch.negative, 1.0, stiffness) * batch.shares / (1 + stiffness)).astype(np.float32)
        return partial(_away_from, wanted, weights)


def _away_from(wanted: Array, weights: Array, scores: Array, rows: slice) -> Array:
    """A `Pull`: how far probabilities are from what is wanted `(n, classes)`, times what each input counts `(n,)`."""
    gradient: Array = (probabilities(scores) - wanted[rows]) * weights[rows, None]
    return gradient


def last_layer(problem: Problem, parameters: tuple[str, ...]) -> Suspects:
    """Every weight of these parameters of the last layer."""
    info = problem.backend.layers[-1]
    own = [name for name in parameters if name in info.parameters]
    if info.kind != "dense" or not own:
        raise UsageError(f"the last layer, '{info.name}', has no {' or '.join(parameters)} of a dense layer to change")
    addresses = [
        Address(info.name, name, tuple(int(number) for number in index))
        for name in own
        for index in np.ndindex(*info.parameters[name].shape)
    ]
    return Suspects.of(problem.backend, addresses)
