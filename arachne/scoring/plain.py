"""PlainScorer: full passes of the model with a change in place; slow, and simple enough to verify by reading."""

from __future__ import annotations

from contextlib import AbstractContextManager

import numpy as np

from arachne.model.backend import LossGradient, ModelBackend, Weights
from arachne.model.cut import temporary_weights
from arachne.model.values import Array, Inputs, take
from arachne.scoring.base import Scorer, ignore_overflow
from arachne.weights.selection import Selection


def forward_with(backend: ModelBackend, change: AbstractContextManager[object], inputs: Inputs) -> Array:
    """Return the raw outputs `(n, ...)` of a model while a change is in place."""
    with change, ignore_overflow():
        return backend.forward(inputs)


def forward_with_weights(backend: ModelBackend, weights: Weights, inputs: Inputs) -> Array:
    """Return the raw outputs `(n, ...)` of a model with other values for whole parameters."""
    return forward_with(backend, temporary_weights(backend, weights), inputs)


class PlainScorer(Scorer):
    """Puts values into the model, runs it, and puts the original weights back.

    Args:
        backend: The model; its weights are restored after each call.
        inputs: The inputs.
        suspects: The weights whose values vary.
    """

    def __init__(self, backend: ModelBackend, inputs: Inputs, suspects: Selection) -> None:
        self._backend, self._inputs, self._suspects = backend, inputs, suspects
        self._original = suspects.whole_parameters(backend)

    def scores(self, values: Array, rows: Array | None = None) -> Array:
        """Return class scores when the suspects have these values, of all inputs when `rows` is None."""
        inputs = self._inputs if rows is None else take(self._inputs, rows)
        return forward_with_weights(self._backend, self.weights_with(values), inputs)

    def gradients(self, values: Array, loss_gradient: LossGradient, rows: Array) -> Array:
        with temporary_weights(self._backend, self.weights_with(values)):
            found = self._backend.weight_gradients(
                take(self._inputs, rows), loss_gradient, list(self._suspects.parameters)
            )
        return np.concatenate([found[slice_.key][slice_.index] for slice_ in self._suspects.slices]).astype(np.float64)

    def weights_with(self, values: Array) -> Weights:
        """Return the whole parameters that hold suspects, with these values `(k,)` in them."""
        return self._suspects.put(values, self._original)
