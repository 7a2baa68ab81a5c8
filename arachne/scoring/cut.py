"""CutScorer: scores behind a cut, for any layers of any model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from arachne.model.backend import Cut, LossGradient, ModelBackend
from arachne.model.cut import LazyCut, PlainCut
from arachne.model.sharding import interleave_groups
from arachne.model.values import Array, Inputs, count, take
from arachne.scoring.base import Scorer
from arachne.weights.selection import Selection


class Cuts:
    """Cuts of a model at several layers for the same inputs; the activations before a cut are computed once.

    Args:
        backend: The model; every cut keeps the weights it had when the cut was made.
        inputs: The inputs.
        groups: The kind of each input `(n,)`; every shard gets its share of each kind.

    Attributes:
        positions: The position of each input in the order of the cuts, `(n,)`.
    """

    def __init__(self, backend: ModelBackend, inputs: Inputs, groups: Array | None = None) -> None:
        self._backend, self._inputs = backend, inputs
        self._order = interleave_groups(np.zeros(count(inputs)) if groups is None else groups)
        self.positions = np.argsort(self._order)
        self._made: dict[tuple[str, ...], Cut] = {}

    def at(self, layers: Sequence[str]) -> Cut:
        """Return a cut at the earliest use of these layers, or of these and later ones."""
        found = self._find(layers)
        if found is None:
            moved = bool((np.diff(self._order) != 1).any())
            inputs = take(self._inputs, self._order) if moved else self._inputs
            found = self._made[tuple(layers)] = self._backend.cut(inputs, layers)
        return found

    def saves(self, layers: Sequence[str]) -> bool:
        """Tell whether a cut at these layers exists and is cheaper than a full pass."""
        found = self._find(layers)
        return found is not None and not isinstance(found, (PlainCut, LazyCut))

    def _find(self, layers: Sequence[str]) -> Cut | None:
        exact = self._made.get(tuple(layers))
        fitting = (cut for made, cut in self._made.items() if cut.layer in layers and set(layers) <= set(made))
        return exact or next(fitting, None)


class CutScorer(Scorer):
    """Scores for any layers of any model: everything before the first touched layer is computed once.

    Args:
        backend: The model.
        cuts: Its cuts.
        suspects: The weights whose values vary.
        numbers: The inputs of the cuts that are scored, in order; all when None.
    """

    def __init__(self, backend: ModelBackend, cuts: Cuts, suspects: Selection, numbers: Array | None = None) -> None:
        self._suspects = suspects
        self._positions = cuts.positions if numbers is None else cuts.positions[numbers]
        self._cut = cuts.at(suspects.layers)
        self._original = suspects.whole_parameters(backend)
        self._elements = {slice_.key: slice_.index for slice_ in suspects.slices}

    def scores(self, values: Array, rows: Array) -> Array:
        return self._cut.scores_by_shard(self._suspects.put(values, self._original), self._positions[rows])

    def gradients(self, values: Array, loss_gradient: LossGradient, rows: Array) -> Array:
        found = self._cut.gradients_by_shard(
            self._suspects.put(values, self._original), loss_gradient, self._positions[rows], self._elements
        )
        return np.concatenate(list(found.values())).astype(np.float64)
