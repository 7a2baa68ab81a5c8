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
from arachne.options import option
from arachne.search.base import Problem
from arachne.search.retraining import Retraining, flat, scores_with, trained
from arachne.values import Array, Inputs, take


@dataclass(frozen=True, kw_only=True)
class Apricot(Retraining):
    """Weights moved towards reduced models that get the fault right and away from those that do not.

    Attributes:
        reduced: How many reduced models there are.
        subset: The share of the training inputs that each of them is trained on.
        reduced_epochs: How often it goes through them.
        fresh: Whether reduced models start from random weights instead of the model's own.
        adjustment: How far one adjustment goes.
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

    def prepared(
        self, problem: Problem, arrays: dict[str, Array], number: int, *, rng: np.random.Generator
    ) -> dict[str, Array]:
        """One reduced model more: its weights, and which negatives it gets right."""
        training, negatives = training_of(problem), self._negatives(problem)
        n = max(1, round(self.subset * len(training)))
        rows = rng.choice(len(training), size=n, replace=False)
        start = self._random(problem, rng=rng) if self.fresh else problem.suspects.values
        plan = self.plan(int(rng.integers(2**31)), self.reduced_epochs)
        own = flat(problem, trained(problem, start, take(training.inputs, rows), training.labels[rows], plan))
        scores = scores_with(problem, own, take(problem.fitness_inputs.inputs, negatives))
        right = np.argmax(scores, axis=1) == problem.fitness_inputs.labels[negatives]
        models = arrays.get("reduced", np.zeros((0, len(own)), np.float32))
        known = arrays.get("reduced_right", np.zeros((0, len(right)), bool))
        return {
            **arrays,
            "reduced": np.concatenate([models, own[None].astype(np.float32)]),
            "reduced_right": np.concatenate([known, right[None]]),
        }

    def material(self, problem: Problem, arrays: dict[str, Array]) -> tuple[Inputs, Array]:
        training = training_of(problem)
        return training.inputs, training.labels

    def adjusted(self, problem: Problem, arrays: dict[str, Array], current: Array) -> Array:
        """Towards the reduced models that are right, and away from those that are wrong, on what is wrong now."""
        negatives = self._negatives(problem)
        scores = scores_with(problem, current, take(problem.fitness_inputs.inputs, negatives))
        wrong = np.argmax(scores, axis=1) != problem.fitness_inputs.labels[negatives]
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
        """Weights drawn from their layers' Gaussians, biases of zero; scales of normalisation stay."""
        suspects = problem.suspects
        found = suspects.values.copy()
        for place in suspects.places:
            if place.parameter in problem.backend.info(place.layer).weights:
                found[place.numbers] = rng.normal(0.0, suspects.deviations[place.numbers])
            elif place.parameter.startswith("bias"):
                found[place.numbers] = 0.0
        return found


def training_of(problem: Problem) -> LabelledData:
    """The training inputs, where they are needed.

    Raises:
        UsageError: There are none.
    """
    if problem.training is None:
        raise UsageError("this search retrains the model and needs its training data", argument="training")
    return problem.training


def _means(chosen: Array) -> Array:
    """What each model counts in the mean of the chosen ones, by input: `(models, inputs)`; zeros where none is."""
    return np.asarray(chosen / np.maximum(chosen.sum(axis=0), 1))
