"""From a pull to gradients: what it says of a batch, and gradients of variables added up over batches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from arachne.backend import Pull, Weights, pulled
from arachne.values import Array
from arachne_keras.autodiff import Seed, to_array
from arachne_keras.stored import Stored


def seed_of(pull: Pull, start: int, n: int) -> Seed:
    """What a pull says of `n` rows from number `start` on; rows that fill the batch up get zeros."""

    def seed(scores: Array) -> Array:
        whole = np.zeros_like(scores)
        if n:
            whole[:n] = pulled(pull, scores[:n], slice(start, start + n))
        return whole

    return seed


def gradients_of(places: Mapping[tuple[str, str], Stored], batches: Iterable[Sequence[Any]]) -> Weights:
    """Gradients with respect to parameters, summed over batches, in the canonical layout.

    Args:
        places: Where the parameters are stored.
        batches: For each batch a gradient for each variable, in the order in which the parameters name them.
    """
    variables = {id(stored.variable): stored.variable for stored in places.values()}
    sums = {key: np.zeros(tuple(variable.shape), np.float32) for key, variable in variables.items()}
    for gradients in batches:
        for total, gradient in zip(sums.values(), gradients, strict=True):
            total += to_array(gradient)
    return {place: stored.canonical(sums[id(stored.variable)]) for place, stored in places.items()}
