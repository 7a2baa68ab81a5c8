"""The averages of what flows through layers, added up as a backend shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any, Self

import numpy as np
from scipy import sparse

from arachne.backend import ModelBackend, Observer
from arachne.localise.linear_maps import LINEAR, Entering, Flow, Linear
from arachne.memory import give_back
from arachne.values import Activation, Array, LayerInfo

OFTEN, LARGE = 16 << 20, 1 << 24
"""After how many bytes that were shown memory is handed back, in models with how many weights."""


class Averages(Observer):
    """Of each use of each layer: the mean of what enters, and of the gradients at what leaves, summed over seeds.

    Args:
        backend: The model.
        layers: The layers to average over.
        magnitudes: Whether the magnitudes of gradients are averaged, rather than gradients with their signs.
        dtype: What the averages are held in; what is added to them is summed in float64.
    """

    def __init__(
        self, backend: ModelBackend, layers: Sequence[LayerInfo], *, magnitudes: bool, dtype: Any = np.float64
    ) -> None:
        self._layers = {
            info.name: _Layer(info, backend.get_weights(info.name) if info.kind == "norm" else {}, magnitudes, dtype)
            for info in layers
        }
        self._share, self._since = 1.0, 0
        self._large = sum(entry.size for info in layers for entry in info.parameters.values()) > LARGE

    def counting(self, share: float) -> Self:
        """The same, to which each input from now on adds this share of itself: 1 / n for a mean over n inputs."""
        self._share = share
        return self

    def activation(self, layer: str, use: int, activation: Activation) -> None:
        self._layers[layer].add(use, activation, self._share)
        self._passed(activation.leaving.nbytes)

    def gradient(self, layer: str, use: int, gradient: Array) -> None:
        self._layers[layer].add_gradient(use, gradient, self._share)
        self._passed(gradient.nbytes)

    def apart(self) -> Self:
        found = copy(self)
        found._layers = {name: own.apart() for name, own in self._layers.items()}
        return found

    def join(self, other: Self) -> None:
        for name, own in other._layers.items():
            self._layers[name].join(own)

    def take(self, layer: str) -> list[Flow]:
        """The averages of one layer's uses, which are then forgotten here."""
        return self._layers.pop(layer).flows()

    @property
    def nbytes(self) -> int:
        """How much memory the averages take."""
        return sum(own.nbytes for own in self._layers.values())

    def _passed(self, size: int) -> None:
        """Some bytes more were shown; the gaps that such tensors leave are handed back now and then."""
        self._since += size
        if self._large and self._since > OFTEN:
            self._since = 0
            give_back()


class _Layer:
    """The averages of one layer. A use may be several pieces, frames that were folded into the batch for example."""

    def __init__(self, info: LayerInfo, weights: Mapping[str, Array], magnitudes: bool, dtype: Any) -> None:
        self._info, self._weights, self._magnitudes, self._dtype = info, weights, magnitudes, dtype
        self._linear: Linear = LINEAR[info.kind](info)
        self._channels_last: dict[int, bool] = {}
        self._entering: dict[tuple[int, int], dict[str, Entering]] = {}
        self._gradients: dict[tuple[int, int], Array] = {}
        self._leaving: dict[tuple[int, int], tuple[int, ...]] = {}
        self._transposed: dict[tuple[int, int], bool] = {}

    def apart(self) -> _Layer:
        """Averages of the same layer, of nothing yet."""
        return _Layer(self._info, self._weights, self._magnitudes, self._dtype)

    def join(self, other: _Layer) -> None:
        """Add what another one has."""
        self._channels_last |= other._channels_last
        self._leaving |= other._leaving
        self._transposed |= other._transposed
        for key, entering in other._entering.items():
            own = self._entering.setdefault(key, {})
            for parameter, values in entering.items():
                own[parameter] = self._sum(own.get(parameter), values)
        for key, values in other._gradients.items():
            self._gradients[key] = self._sum(self._gradients.get(key), values)

    def add(self, use: int, activation: Activation, share: float) -> None:
        """What enters and leaves a use for some inputs."""
        if use not in self._channels_last:
            self._channels_last[use] = self._linear.channels_last(activation, self._weights)
        for piece, one in enumerate(self._linear.uses(activation, self._channels_last[use])):
            own = self._entering.setdefault((use, piece), {})
            self._transposed[use, piece], self._leaving[use, piece] = one.transposed, one.leaving.shape[1:]
            for parameter in one.entering:
                own[parameter] = self._plus(own.get(parameter), self._linear.total(parameter, one), share)

    def add_gradient(self, use: int, gradient: Array, share: float) -> None:
        """The gradients of one seed for the same inputs."""
        for piece, values in enumerate(self._linear.outputs(gradient, self._channels_last[use])):
            values = np.abs(values) if self._magnitudes else values
            total = values[0].astype(np.float64) if len(values) == 1 else values.sum(axis=0, dtype=np.float64)
            self._gradients[use, piece] = self._plus(self._gradients.get((use, piece)), total, share)

    def flows(self) -> list[Flow]:
        """The averages; zeros where no gradient came."""
        found = []
        for key in sorted(self._entering):
            gradient = self._gradients.get(key)
            gradient = np.zeros(self._leaving[key], self._dtype) if gradient is None else gradient
            found.append(Flow(self._entering[key], gradient, self._transposed[key]))
        return found

    @property
    def nbytes(self) -> int:
        """How much memory the averages take."""
        return sum(_nbytes(values) for own in self._entering.values() for values in own.values()) + sum(
            values.nbytes for values in self._gradients.values()
        )

    def _plus(self, total: Entering | None, more: Entering, share: float) -> Entering:
        """The total with a share of something added, in the same memory where that can be."""
        more *= share
        return self._sum(total, more)

    def _sum(self, total: Entering | None, more: Entering) -> Entering:
        if total is None:
            return more if sparse.issparse(more) else more.astype(self._dtype, copy=False)
        if sparse.issparse(total) or total.shape != more.shape:
            joined = added(total, more)
            return joined if sparse.issparse(joined) else joined.astype(self._dtype, copy=False)
        return np.add(total, more, out=total, casting="same_kind")


def added(total: Entering, more: Entering) -> Entering:
    """The sum of two arrays or sparse matrices; steps that only one has count as zeros."""
    if total.shape == more.shape:
        return total + more
    shape = tuple(map(max, total.shape, more.shape))
    if sparse.issparse(total):
        for one in (total, more):
            one.resize(shape)
        return total + more
    joined = np.zeros(shape)
    for one in (total, more):
        joined[tuple(map(slice, one.shape))] += one
    return joined


def magnitudes(flows: Sequence[Flow]) -> list[Flow]:
    """The same with the magnitudes of what enters on average, all in float64."""
    return [
        Flow(
            {name: abs(_wide(values)) for name, values in flow.entering.items()},
            _wide(flow.gradient),
            flow.transposed,
        )
        for flow in flows
    ]


def _wide(values: Entering) -> Entering:
    return values if sparse.issparse(values) else values.astype(np.float64, copy=False)


def _nbytes(values: Entering) -> int:
    return int(values.data.nbytes if sparse.issparse(values) else values.nbytes)
