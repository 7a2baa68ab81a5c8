"""DeepFault's other half (Eniser et al., 2019): inputs that raise the suspicious neurons, for retraining.

The neurons are the model's features, the inputs of its last dense layer. The most suspicious ones are active on
negatives and not on positives, by Tarantula, Ochiai or D* (`arachne.localise.spectrum`). From inputs that are
classified correctly, others are synthesised by steps along the gradient of the suspicious neurons' sum, within a
distance from the start and within the domain. With their true labels they are added to the inputs that the model is
retrained on.

The gradient of a feature needs no further operation of a backend: with a last layer that returns the sum of the
suspicious features as its first score and zeros otherwise, it is a gradient of the scores.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from arachne.decisions.losses import LossGradient
from arachne.errors import UsageError
from arachne.localise.spectrum import FORMULAS
from arachne.model.cut import temporary_weights
from arachne.model.values import Array, Inputs, Weights, by_name, check_real, read, take
from arachne.plugins.options import option
from arachne.rivals.features import feature_layer, joined_features
from arachne.rivals.retraining import Retraining
from arachne.search.problem import Problem
from arachne.search.state import SearchState

SYNTHESISED_PREFIX = "synthesised."


@dataclass(frozen=True, kw_only=True)
class DeepFault(Retraining):
    """Retraining on inputs that were changed to raise the most suspicious features, mixed with others.

    Attributes:
        suspicion: The formula of a feature's suspiciousness.
        active_above: A feature is active above this value.
        suspicious: The number of features to raise.
        synthesised: The number of inputs to synthesise.
        input_steps: The number of steps along the gradient.
        input_step: The size of a step, as a share of the domain.
        distance: How far each number of an input may move in all, as a share of the domain.
        domain: The smallest and largest number of an input; taken from the seen inputs when None.
        mixed: The share of other inputs in the training set.
    """

    name = "deepfault"

    suspicion: str = option("tarantula", "How suspicious a feature is.", choices=tuple(FORMULAS))
    active_above: float = option(0.0, "Above which value a feature is active.")
    suspicious: int = option(10, "Suspicious features to raise.", least=1)
    synthesised: int = option(1000, "Inputs to synthesise.", least=1)
    input_steps: int = option(10, "Steps of a synthesised input.", least=1)
    input_step: float = option(0.02, "How far one goes, as a share of the domain.", least=0)
    distance: float = option(0.1, "How far an input may go in all, as a share of the domain.", least=0)
    domain: tuple[float, float] | None = option(None, "Smallest and largest number of an input; as seen if left out.")
    mixed: float = option(0.5, "Share of ordinary inputs among those a rival retrains on.", least=0, most=0.99)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.domain is not None and self.domain[0] >= self.domain[1]:
            raise UsageError(
                f"domain must be a smaller and a larger number, got {self.domain[0]:g} and {self.domain[1]:g}"
            )

    def begin(self, problem: Problem, *, rng: np.random.Generator) -> SearchState:
        check_real(problem.split.seen.data.inputs)
        return super().begin(problem, rng=rng)

    def prepare(
        self, problem: Problem, arrays: dict[str, Array], number: int, *, rng: np.random.Generator
    ) -> dict[str, Array]:
        """Find the suspicious features, and synthesise inputs that raise them."""
        seen = problem.split.seen
        size = min(self.synthesised, len(seen.positives))
        if not size:
            raise UsageError(
                "inputs are synthesised from those the model gets right, and it gets none of the seen right"
            )
        rows = np.sort(rng.choice(seen.positives, size=size, replace=False))
        start = by_name(read(take(seen.data.inputs, rows)))
        found = self.raise_features(problem, start, self._suspicious(problem))
        base = self._ordinary(problem)[1]
        more = min(len(base), max(1, round(size * self.mixed / (1 - self.mixed))))
        return {
            **arrays,
            **{SYNTHESISED_PREFIX + name: array for name, array in found.items()},
            "labels": seen.data.labels[rows],
            "rows": rng.choice(len(base), size=more, replace=False),
        }

    def training_set(self, problem: Problem, arrays: dict[str, Array]) -> tuple[Inputs, Array]:
        inputs, labels = self._ordinary(problem)
        own = by_name(read(take(inputs, arrays["rows"])))
        both = {name: np.concatenate([arrays[SYNTHESISED_PREFIX + name], array]) for name, array in own.items()}
        answers = np.concatenate([arrays["labels"], labels[arrays["rows"]]])
        return both if isinstance(inputs, Mapping) else both[""], answers

    def raise_features(self, problem: Problem, start: Mapping[str, Array], chosen: Array) -> dict[str, Array]:
        """Move inputs so that the chosen features rise, within the domain and the distance."""
        found = {name: array.astype(np.float32) for name, array in start.items()}
        bounds = {name: self._bounds(problem, name) for name in found}
        with temporary_weights(problem.backend, _summing(problem, chosen)):
            for _ in range(self.input_steps):
                inputs: Inputs = found[""] if "" in start else found
                slopes = by_name(problem.backend.input_gradients(inputs, _upwards(problem)))
                for name, slope in slopes.items():
                    low, high = bounds[name]
                    steep = np.abs(slope).reshape(len(slope), -1).max(axis=1)
                    scale = (high - low) / np.maximum(steep, 1e-30).reshape(-1, *(1,) * (slope.ndim - 1))
                    moved = found[name] - self.input_step * scale * slope
                    far = self.distance * (high - low)
                    moved = np.clip(moved, start[name] - far, start[name] + far)
                    found[name] = np.clip(moved, low, high).astype(np.float32)
        return {
            name: np.rint(array).astype(np.uint8) if start[name].dtype == np.uint8 else array.astype(start[name].dtype)
            for name, array in found.items()
        }

    def _suspicious(self, problem: Problem) -> Array:
        """Return the numbers of the features to raise."""
        seen = problem.split.seen
        failing, passing = (
            (joined_features(problem.backend, take(seen.data.inputs, rows)) > self.active_above).sum(axis=0)
            for rows in (seen.negatives, seen.positives)
        )
        found = FORMULAS[self.suspicion](failing, passing, len(seen.negatives), len(seen.positives))
        return np.argsort(-found, kind="stable")[: self.suspicious]

    def _ordinary(self, problem: Problem) -> tuple[Inputs, Array]:
        """Return ordinary inputs and labels to mix in: training inputs if there are any, else the seen ones."""
        if problem.training is not None:
            return problem.training.inputs, problem.training.labels
        return problem.fitness_inputs.inputs, problem.fitness_inputs.labels

    def _bounds(self, problem: Problem, name: str) -> tuple[float, float]:
        if self.domain is not None:
            return self.domain
        inputs = by_name(problem.fitness_inputs.inputs)[name]
        return float(inputs.min()), float(inputs.max())


def _summing(problem: Problem, chosen: Array) -> Weights:
    """Return a last layer whose first score is the sum of the chosen features, and whose other scores are zero."""
    info = feature_layer(problem.backend)
    found = {(info.name, name): np.zeros(own.shape, np.float32) for name, own in info.parameters.items()}
    found[info.name, "weight"][0, chosen] = 1.0
    return found


def _upwards(problem: Problem) -> LossGradient:
    """Return the gradient of a loss that falls as the first score rises; the second score of a sigmoid output."""
    alone = feature_layer(problem.backend).parameters["weight"].shape[0] == 1

    def loss_gradient(scores: Array, rows: slice) -> Array:
        gradient = np.zeros_like(scores)
        gradient[:, 0], gradient[:, 1] = (1, -1) if alone else (-1, 1)
        return gradient

    return loss_gradient
