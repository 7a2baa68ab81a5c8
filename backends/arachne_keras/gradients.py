"""Gradients of a loss: its gradient for a batch of scores, and gradients of variables added up over batches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from arachne.model.backend import LossGradient, Weights, compute_gradient
from arachne.model.values import Array
from arachne_keras.autodiff import Seed, to_array
from arachne_keras.parameter_slice import ParameterSlice


def seed_of(loss: LossGradient, start: int, n: int) -> Seed:
    """Return the loss gradient of `n` rows from number `start` on, with zeros for padded rows."""

    def seed(scores: Array) -> Array:
        whole = np.zeros_like(scores)
        if n:
            whole[:n] = compute_gradient(loss, scores[:n], slice(start, start + n))
        return whole

    return seed


def gradients_of(slices: Mapping[tuple[str, str], ParameterSlice], batches: Iterable[Sequence[Any]]) -> Weights:
    """Gradients with respect to parameters, summed over batches, in the canonical layout.

    Args:
        slices: Where the parameters are stored.
        batches: For each batch a gradient for each variable, in the order in which the parameters name them.
    """
    variables = {id(stored.variable): stored.variable for stored in slices.values()}
    sums = {key: np.zeros(tuple(variable.shape), np.float32) for key, variable in variables.items()}
    for gradients in batches:
        for total, gradient in zip(sums.values(), gradients, strict=True):
            total += to_array(gradient)
    return {key: stored.to_canonical(sums[id(stored.variable)]) for key, stored in slices.items()}
