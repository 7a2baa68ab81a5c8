"""A model as a function of some of its weights: their values in, scores and gradients out. What gradient steps need."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from arachne.backend import Cut, ModelBackend, Pull, Weights
from arachne.cuts import LazyCut, PlainCut
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


class Cuts:
    """A model held open at several places for the same inputs; what lies before a place is computed once for all.

    Args:
        backend: The model; every cut holds the weights it had when the cut was made.
        inputs: The inputs.
        groups: Kinds of inputs `(n,)` that steps look at alike: each shard is given its share of them.

    Attributes:
        places: Where each input stands among those of the cuts, `(n,)`.
    """

    def __init__(self, backend: ModelBackend, inputs: Inputs, groups: Array | None = None) -> None:
        self._backend, self._inputs = backend, inputs
        self._order = spread(np.zeros(count(inputs)) if groups is None else groups)
        self.places = np.argsort(self._order)
        self._made: dict[tuple[str, ...], Cut] = {}

    def at(self, layers: Sequence[str]) -> Cut:
        """A cut at the earliest use of these layers, or of more."""
        found = self._found(layers)
        if found is None:
            moved = bool((np.diff(self._order) != 1).any())
            inputs = take(self._inputs, self._order) if moved else self._inputs
            found = self._made[tuple(layers)] = self._backend.cut(inputs, layers)
        return found

    def saves(self, layers: Sequence[str]) -> bool:
        """Whether a question costs less than a full pass: there is a cut at these layers, and it keeps something."""
        found = self._found(layers)
        return found is not None and not isinstance(found, (PlainCut, LazyCut))

    def _found(self, layers: Sequence[str]) -> Cut | None:
        exact = self._made.get(tuple(layers))
        return exact or next((cut for made, cut in self._made.items() if set(layers) <= set(made)), None)


class BehindCut(Tunable):
    """Any layers of any model: everything before the first touched layer is computed once, the rest at each step.

    Args:
        backend: The model.
        cuts: Where it is held open.
        suspects: The weights whose values vary.
        numbers: Which inputs of the cuts are meant, in order; all when None.
    """

    def __init__(self, backend: ModelBackend, cuts: Cuts, suspects: Suspects, numbers: Array | None = None) -> None:
        self._suspects = suspects
        self._places = cuts.places if numbers is None else cuts.places[numbers]
        self._cut = cuts.at(suspects.layers)
        self._original = {
            (layer, parameter): np.asarray(backend.get_weights(layer)[parameter])
            for layer, parameter in suspects.parameters
        }
        self._elements = {(place.layer, place.parameter): place.index for place in suspects.places}

    def scores(self, values: Array, rows: Array) -> Array:
        return self._cut.scores_by_shard(self._with(values), self._places[rows])

    def gradients(self, values: Array, pull: Pull, rows: Array) -> Array:
        found = self._cut.gradients_by_shard(self._with(values), pull, self._places[rows], self._elements)
        return np.concatenate(list(found.values())).astype(np.float64)

    def _with(self, values: Array) -> Weights:
        weights = {address: whole.copy() for address, whole in self._original.items()}
        for place in self._suspects.places:
            weights[place.layer, place.parameter][place.index] = values[place.numbers]
        return weights
