"""A model as a function of some of its weights: their values in, scores and gradients out. What gradient steps need."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from arachne.backend import ModelBackend, Pull, Weights
from arachne.shards import spread
from arachne.suspects import Suspects
from arachne.values import Array, Inputs, count, take


class Tunable(ABC):
    """Scores of some inputs, and gradients of losses over them, at other values of the suspects.

    `rows` are row numbers of the inputs it was made with.
    """

    @abstractmethod
    def scores(self, values: Array, rows: Array) -> Array:
        """Class scores `(rows, classes)` when the suspects have these values `(k,)`."""

    @abstractmethod
    def gradients(self, values: Array, pull: Pull, rows: Array) -> Array:
        """The gradient of a loss over these rows with respect to the suspects, float64 `(k,)`."""


class BehindCut(Tunable):
    """Any layers of any model: everything before the first touched layer is computed once, the rest at each step."""

    def __init__(self, backend: ModelBackend, inputs: Inputs, suspects: Suspects, groups: Array | None = None) -> None:
        """Hold the model open.

        Args:
            backend: The model.
            inputs: The inputs.
            suspects: The weights whose values vary.
            groups: Kinds of inputs `(n,)` that steps look at alike: each shard is given its share of them.
        """
        self._suspects = suspects
        order = spread(np.zeros(count(inputs)) if groups is None else groups)
        self._place = np.argsort(order)
        moved = bool((np.diff(order) != 1).any())
        layers = list(dict.fromkeys(layer for layer, _ in suspects.parameters))
        self._cut = backend.cut(take(inputs, order) if moved else inputs, layers)
        self._original = {
            (layer, parameter): np.asarray(backend.get_weights(layer)[parameter])
            for layer, parameter in suspects.parameters
        }
        self._elements = {(place.layer, place.parameter): place.index for place in suspects.places}

    def scores(self, values: Array, rows: Array) -> Array:
        return self._cut.scores_by_shard(self._with(values), self._place[rows])

    def gradients(self, values: Array, pull: Pull, rows: Array) -> Array:
        found = self._cut.gradients_by_shard(self._with(values), pull, self._place[rows], self._elements)
        return np.concatenate(list(found.values())).astype(np.float64)

    def _with(self, values: Array) -> Weights:
        weights = {address: whole.copy() for address, whole in self._original.items()}
        for place in self._suspects.places:
            weights[place.layer, place.parameter][place.index] = values[place.numbers]
        return weights
