"""Apricot (Zhang and Chan, 2019), in the targeted form that the paper compares itself with.

Reduced models are trained on random subsets of the training inputs. Some of them get an input right that shows the
fault, some get it wrong. Before each slice of training, the weights move towards the mean of the right ones and away
from the mean of the wrong ones, averaged over the negatives that are still wrong:

    w <- w + adjustment * mean over negatives of ((mean of right - w) - (mean of wrong - w))

where a group without members adds nothing. Then the model is trained on the training inputs as usual.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from arachne.data.labelled import LabelledData
from arachne.errors import UsageError
from arachne.model.values import Array, Inputs, take
from arachne.plugins.options import option
from arachne.rivals.retraining import Retraining, scores_with, to_vector, train
from arachne.search.problem import Problem
from arachne.tasks import correct


@dataclass(frozen=True, kw_only=True)
class Apricot(Retraining):
    """Weights moved towards reduced models that get the fault right and away from those that do not.

    Attributes:
        reduced: The number of reduced models.
        subset: The share of the training inputs that each of them is trained on.
        reduced_epochs: The number of epochs of a reduced model.
        fresh: Whether reduced models start from random weights instead of the model's weights.
        adjustment: The size of one adjustment.
    """

    name = "apricot"

    NEEDS_TRAINING = True
    NEEDS_FIT = True

    reduced: int = option(20, "Reduced models to train.", least=2)
    subset: float = option(0.2, "Share of the training inputs for each reduced model.", least=0, most=1)
    reduced_epochs: int = option(5, "Passes over a reduced model's inputs.", least=1)
    fresh: bool = option(False, "Start reduced models from random weights.")
    adjustment: float = option(0.1, "How far weights move towards reduced models at a time.", least=0)

    @property
    def preparations(self) -> int:
        return self.reduced

    def prepare(
        self, problem: Problem, arrays: dict[str, Array], number: int, *, rng: np.random.Generator
    ) -> dict[str, Array]:
        """Train one more reduced model; add its weights, and which negatives it gets right."""
        training, negatives = training_of(problem), self._negatives(problem)
        n = max(1, round(self.subset * len(training)))
        rows = rng.choice(len(training), size=n, replace=False)
        start = self._random(problem, rng=rng) if self.fresh else problem.suspects.values
        plan = self.plan(int(rng.integers(2**31)), self.reduced_epochs)
        own = to_vector(problem, train(problem, start, take(training.inputs, rows), training.labels[rows], plan))
        scores = scores_with(problem, own, take(problem.fitness_inputs.inputs, negatives))
        right = correct(scores, problem.fitness_inputs.labels[negatives])
        models = arrays.get("reduced", np.zeros((0, len(own)), np.float32))
        known = arrays.get("reduced_right", np.zeros((0, len(right)), bool))
        return {
            **arrays,
            "reduced": np.concatenate([models, own[None].astype(np.float32)]),
            "reduced_right": np.concatenate([known, right[None]]),
        }

    def training_set(self, problem: Problem, arrays: dict[str, Array]) -> tuple[Inputs, Array]:
        training = training_of(problem)
        return training.inputs, training.labels

    def adjust(self, problem: Problem, arrays: dict[str, Array], current: Array) -> Array:
        """Move towards the reduced models that are right on the inputs that are wrong now, and away from the others."""
        negatives = self._negatives(problem)
        scores = scores_with(problem, current, take(problem.fitness_inputs.inputs, negatives))
        wrong = ~correct(scores, problem.fitness_inputs.labels[negatives])
        if not wrong.any():
            return current
        right = arrays["reduced_right"][:, wrong]
        towards, away = _means(right), _means(~right)
        shares = (towards - away).mean(axis=1)
        own = (away.sum(axis=0) - towards.sum(axis=0)).mean()
        moved: Array = current + self.adjustment * (shares @ arrays["reduced"] + own * current)
        return moved

    def _negatives(self, problem: Problem) -> Array:
        return np.flatnonzero(problem.fitness_inputs.of_kind("negative"))

    def _random(self, problem: Problem, *, rng: np.random.Generator) -> Array:
        """Draw weights from their layers' Gaussians; set biases to zero, and keep normalisation scales."""
        suspects = problem.suspects
        found = suspects.values.copy()
        for slice_ in suspects.slices:
            if slice_.parameter in problem.backend.info(slice_.layer).weights:
                found[slice_.numbers] = rng.normal(0.0, suspects.deviations[slice_.numbers])
            elif slice_.parameter.startswith("bias"):
                found[slice_.numbers] = 0.0
        return found


def training_of(problem: Problem) -> LabelledData:
    """Return the training inputs.

    Raises:
        UsageError: The user gave none.
    """
    if problem.training is None:
        raise UsageError("this search retrains the model and needs its training data", argument="training")
    return problem.training


def _means(chosen: Array) -> Array:
    """Return each model's weight in the mean of the chosen models, by input `(models, inputs)`; zeros without any."""
    return np.asarray(chosen / np.maximum(chosen.sum(axis=0), 1))
