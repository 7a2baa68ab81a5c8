"""From a pull to gradients: what it says of a batch, and gradients of variables added up over batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


class Sums:
    """Gradients with respect to the variables some parameters are stored in, summed over batches.

    Args:
        places: The parameters, by layer and name.
    """

    def __init__(self, places: Mapping[tuple[str, str], Stored]) -> None:
        self._places = places
        variables = {id(stored.variable): stored.variable for stored in places.values()}
        self._sums = {key: np.zeros(tuple(variable.shape), np.float32) for key, variable in variables.items()}

    def add(self, gradients: Sequence[Any]) -> None:
        """Add those of one batch, a tensor for each variable, in the order in which the parameters name them."""
        for sums, gradient in zip(self._sums.values(), gradients, strict=True):
            sums += to_array(gradient)

    def gradients(self) -> Weights:
        """The sums, in the canonical layout."""
        return {place: stored.canonical(self._sums[id(stored.variable)]) for place, stored in self._places.items()}
