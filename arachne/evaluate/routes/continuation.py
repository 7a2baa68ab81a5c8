"""What lies behind a convolution whose outputs are known: dense layers in NumPy, or all else through a backend's cut.

Arrays have the inputs on their last axis, as NumPy adds, compares and pools them fastest; a backend gets them first.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from arachne.evaluate.routes.features import Features
from arachne.evaluate.routes.functions import apply
from arachne.evaluate.routes.grouped_cuts import GroupedCuts
from arachne.evaluate.routes.tail_layers import DenseLayer
from arachne.values import Array

AT_ONCE = 1 << 25
"""How many bytes of outputs are handed to a backend at once."""


class Continuation(ABC):
    """The way from a convolution's outputs to the scores."""

    in_numpy: bool
    """Whether no backend is needed on it."""

    pairs: int
    """How many pairs of candidate and input are worth continuing with at once."""

    @abstractmethod
    def room(self, candidates: int, rows: int) -> Array:
        """Where what is continued with is gathered, `(..., candidates, rows)`."""

    @abstractmethod
    def made(self, outputs: Array) -> Array:
        """What is continued with, `(..., rows)`, from one candidate's outputs `(channels, *positions, rows)`."""

    @abstractmethod
    def scores(self, room: Array, rows: Array) -> Array:
        """Scores `(candidates, rows, classes)`, for row numbers of the fitness_inputs."""


class DenseContinuation(Continuation):
    """Function, pooling, flattening and dense layers, all of which every candidate changes.

    Args:
        features: How outputs become features.
        shape: The outputs of one input, `(channels, *positions)`.
        links: The dense layers.
    """

    in_numpy = True
    pairs = 512  # fewer, and reading the widest weights takes longer than multiplying with them

    def __init__(self, features: Features, shape: tuple[int, ...], links: Sequence[DenseLayer]) -> None:
        self._features = features
        self._shape = features.of(np.zeros((*shape, 1), np.float32), 1).shape[:-1]
        channels, positions = shape[0], int(np.prod(self._shape[1:]))
        columns = features.columns(np.arange(channels), channels, positions).ravel()
        first = links[0].weight if features.channels_first else links[0].weight[:, columns]
        self._weights = [first, *(link.weight for link in links[1:])]
        self._links = links

    def room(self, candidates: int, rows: int) -> Array:
        return np.empty((*self._shape, candidates, rows), np.float32)

    def made(self, outputs: Array) -> Array:
        return self._features.of(outputs, 1)

    def scores(self, room: Array, rows: Array) -> Array:
        a = room.reshape(-1, room.shape[-2] * room.shape[-1])
        for weight, link in zip(self._weights, self._links, strict=True):
            a = weight @ a
            a += link.bias
            a = apply(link.functions, a)
        return a.T.reshape(*room.shape[-2:], -1)


class CutContinuation(Continuation):
    """Anything at all.

    Args:
        cuts: The model, held open at the convolution.
        shape: The outputs of one input, `(channels, *positions)`.
    """

    in_numpy = False

    def __init__(self, cuts: GroupedCuts, shape: tuple[int, ...]) -> None:
        self._cuts = cuts
        self._shape = shape
        self.pairs = max(1, AT_ONCE // (4 * int(np.prod(shape))))

    def room(self, candidates: int, rows: int) -> Array:
        return np.moveaxis(np.empty((candidates, rows, *self._shape), np.float32), (0, 1), (-2, -1))

    def made(self, outputs: Array) -> Array:
        return outputs

    def scores(self, room: Array, rows: Array) -> Array:
        outputs = np.moveaxis(room, (-2, -1), (0, 1))
        candidates = len(outputs)
        scores = self._cuts.scores_from_outputs(outputs.reshape(-1, *self._shape), np.tile(rows, candidates))
        return scores.reshape(candidates, len(rows), -1)
