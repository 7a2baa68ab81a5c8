"""From a convolution's outputs to the scores: through dense layers in NumPy, or through a backend's cut.

Arrays have the inputs on their last axis, where NumPy adds, compares and pools fastest. For a backend they are moved to
the first axis.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from arachne.model.values import Array
from arachne.scoring.dense_layers import DenseLayer
from arachne.scoring.fast.routes.features import Features
from arachne.scoring.fast.routes.grouped_cuts import GroupedCuts
from arachne.scoring.functions import apply

BYTES_PER_CALL = 1 << 25
"""The most bytes of outputs that a backend gets in one call."""


class Continuation(ABC):
    """The steps from a convolution's outputs to the scores."""

    in_numpy: bool
    """Whether it is all NumPy, without calls of a backend."""

    pairs: int
    """The best number of pairs of candidate and input in one call."""

    @abstractmethod
    def allocate(self, candidates: int, rows: int) -> Array:
        """Allocate an array for the results of `next_inputs` for several candidates: `(..., candidates, rows)`."""

    @abstractmethod
    def next_inputs(self, outputs: Array) -> Array:
        """Return the next step's inputs, `(..., rows)`, from a candidate's outputs `(channels, *positions, rows)`."""

    @abstractmethod
    def scores(self, room: Array, rows: Array) -> Array:
        """Return scores `(candidates, rows, classes)` from a filled array and the numbers of its inputs."""


class DenseContinuation(Continuation):
    """Functions, pooling, flattening and dense layers in NumPy; candidates touch none of these.

    Args:
        features: The steps from the outputs to the first dense layer.
        shape: The outputs of one input, `(channels, *positions)`.
        layers: The dense layers.
    """

    in_numpy = True
    pairs = 512  # fewer, and reading the widest weights takes longer than multiplying with them

    def __init__(self, features: Features, shape: tuple[int, ...], layers: Sequence[DenseLayer]) -> None:
        self._features = features
        self._shape = features.of(np.zeros((*shape, 1), np.float32), 1).shape[:-1]
        channels, positions = shape[0], int(np.prod(self._shape[1:]))
        columns = features.columns(np.arange(channels), channels, positions).ravel()
        first = layers[0].weight if features.channels_first else layers[0].weight[:, columns]
        self._weights = [first, *(layer.weight for layer in layers[1:])]
        self._layers = layers

    def allocate(self, candidates: int, rows: int) -> Array:
        return np.empty((*self._shape, candidates, rows), np.float32)

    def next_inputs(self, outputs: Array) -> Array:
        return self._features.of(outputs, 1)

    def scores(self, room: Array, rows: Array) -> Array:
        a = room.reshape(-1, room.shape[-2] * room.shape[-1])
        for weight, layer in zip(self._weights, self._layers, strict=True):
            a = weight @ a
            a += layer.bias
            a = apply(layer.functions, a)
        return a.T.reshape(*room.shape[-2:], -1)


class CutContinuation(Continuation):
    """The backend's cut, whatever layers follow.

    Args:
        cuts: Cuts of the model at the convolution.
        shape: The outputs of one input, `(channels, *positions)`.
    """

    in_numpy = False

    def __init__(self, cuts: GroupedCuts, shape: tuple[int, ...]) -> None:
        self._cuts = cuts
        self._shape = shape
        self.pairs = max(1, BYTES_PER_CALL // (4 * int(np.prod(shape))))

    def allocate(self, candidates: int, rows: int) -> Array:
        return np.moveaxis(np.empty((candidates, rows, *self._shape), np.float32), (0, 1), (-2, -1))

    def next_inputs(self, outputs: Array) -> Array:
        return outputs

    def scores(self, room: Array, rows: Array) -> Array:
        outputs = np.moveaxis(room, (-2, -1), (0, 1))
        candidates = len(outputs)
        scores = self._cuts.scores_from_outputs(outputs.reshape(-1, *self._shape), np.tile(rows, candidates))
        return scores.reshape(candidates, len(rows), -1)
