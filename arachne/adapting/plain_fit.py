"""Training through `weight_gradients` alone: the reference for `ModelBackend.fit`, and its replacement."""

from __future__ import annotations

import numpy as np

from arachne.decisions.losses import cross_entropies, cross_entropy
from arachne.model.backend import ModelBackend, Weights
from arachne.model.cut import temporary_weights, weights_of
from arachne.model.fitting import BETAS, EPSILON, MOMENTUM, OnStep, Plan, Step
from arachne.model.values import Array, Inputs, count, read, take


def plain_fit(
    backend: ModelBackend, inputs: Inputs, labels: Array, plan: Plan, *, on_step: OnStep | None = None
) -> Weights:
    """Train any backend that has gradients, as `ModelBackend.fit` does; the optimiser's step is made in NumPy.

    Args:
        backend: The model; it keeps its own weights.
        inputs: `n` inputs.
        labels: Their classes `(n,)`.
        plan: How to train.
        on_step: Called after each step; True ends the training.
    """
    weights = {key: np.array(values, copy=True) for key, values in weights_of(backend).items()}
    first = {key: np.zeros(values.shape) for key, values in weights.items()}
    second = {key: np.zeros(values.shape) for key, values in weights.items()}
    steps = plan.steps(count(inputs))
    for number, rows in enumerate(plan.batches(count(inputs)), start=1):
        loss = _Loss(labels[rows])
        with temporary_weights(backend, weights):
            slopes = backend.weight_gradients(read(take(inputs, rows)), loss)
        for key, slope in slopes.items():
            change = _change(plan, first[key], second[key], slope.astype(np.float64), number)
            weights[key] = (weights[key] - plan.rate * change).astype(weights[key].dtype)
        if on_step is not None and on_step(Step(number, steps, loss.value / len(rows))):
            break
    return weights


class _Loss:
    """The gradient of a batch's mean cross-entropy, which remembers the loss."""

    def __init__(self, labels: Array) -> None:
        self._labels = labels
        self._loss = cross_entropy(labels)
        self.value = 0.0

    def __call__(self, scores: Array, rows: slice) -> Array:
        self.value += float(cross_entropies(scores, self._labels[rows]).sum())
        return self._loss(scores, rows)


def _change(plan: Plan, first: Array, second: Array, slope: Array, number: int) -> Array:
    """Return the direction of a step in units of the rate; the moments are changed in place."""
    if plan.optimiser == "sgd":
        first *= MOMENTUM
        first += slope
        return first
    one, two = BETAS
    first += (1 - one) * (slope - first)
    second += (1 - two) * (slope * slope - second)
    step: Array = first / (1 - one**number) / (np.sqrt(second / (1 - two**number)) + EPSILON)
    return step
