"""Moments of what enters the scale of normalisations, by channel: 0 and 1 where stored statistics fit the inputs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import numpy as np

from arachne.model.accumulate import ActivationAccumulator
from arachne.model.cut import temporary_weights
from arachne.model.values import Activation, Array, Inputs, batches

if TYPE_CHECKING:
    from arachne.model.backend import ModelBackend

SAME = 1e-2
"""Moments of single inputs this close to 0 and 1 show a norm without stored statistics."""

LEAST_DEVIATION = 1e-3
"""A channel that hardly varies on these inputs keeps its deviation: dividing by it would blow noise up."""


BLOCK_VALUES = 1 << 20
"""How many values are added up at a time."""


@dataclass
class Moments:
    """Sums over inputs and positions for each channel `(channels,)`, and the moments of single inputs."""

    number: int = 0
    first: Array = field(default_factory=lambda: np.zeros(0))
    second: Array = field(default_factory=lambda: np.zeros(0))
    by_input: list[tuple[float, float]] = field(default_factory=list)

    def add(self, values: Array) -> None:
        """Add what enters a scale, `(n, channels, ...)`; some inputs at a time become float64."""
        each = max(1, values.size // max(1, len(values)))
        for rows in batches(len(values), max(1, BLOCK_VALUES // each)):
            own = np.asarray(values[rows], np.float64).reshape(rows.stop - rows.start, values.shape[1], -1)
            first, second = own.sum(axis=2), np.einsum("ncp,ncp->nc", own, own)
            means, squares = ((one.sum(axis=1) / each).tolist() for one in (first, second))
            by_input = list(zip(means, squares, strict=True))
            self.merge(Moments(own.size // own.shape[1], first.sum(axis=0), second.sum(axis=0), by_input))

    def merge(self, other: Moments) -> None:
        """Add other inputs' sums."""
        self.first = self.first + other.first if self.number else other.first
        self.second = self.second + other.second if self.number else other.second
        self.number += other.number
        self.by_input += other.by_input

    @property
    def stores_statistics(self) -> bool:
        """Whether the norm uses statistics it stores: single inputs do not have mean 0 or mean square 1 behind it."""
        means, squares = (np.array(one) for one in zip(*self.by_input, strict=True))
        return not (np.all(np.abs(means) < SAME) or np.all(np.abs(squares - 1) < SAME))

    @property
    def mean(self) -> Array:
        """The mean of each channel, float64 `(channels,)`."""
        return np.asarray(self.first / self.number)

    @property
    def deviation(self) -> Array:
        """The deviation of each channel, float64 `(channels,)`; tiny where all values are equal, never 0."""
        return np.asarray(np.sqrt(np.maximum(self.second / self.number - self.mean**2, 1e-12)))

    @property
    def shift(self) -> float:
        """How far the median channel is from mean 0 and deviation 1; 0 for a norm that stores nothing."""
        if not self.stores_statistics:
            return 0.0
        return float(np.median(np.maximum(np.abs(self.mean), np.abs(np.log(self.deviation)))))


@dataclass
class NormAccumulator(ActivationAccumulator):
    """Adds up the moments behind the normalisations that it is shown.

    Attributes:
        norms: The moments of each.
        only: The one layer whose moments are wanted, and the number of its uses; all when None.
    """

    norms: dict[str, Moments] = field(default_factory=dict)
    only: tuple[str, int] | None = None

    def activation(self, layer: str, use: int, activation: Activation) -> None:
        """Add one batch."""
        if "scale" in activation.entering and (self.only is None or self.only[0] == layer):
            self.norms.setdefault(layer, Moments()).add(activation.entering["scale"])

    def gradient(self, layer: str, use: int, gradient: Array) -> None:
        """Nothing: no gradients are asked for."""

    def is_enough(self, layer: str, use: int) -> bool:
        """Tell whether this is the last use of the one layer that is wanted."""
        return self.only == (layer, use + 1)

    def split(self) -> Self:
        """Return an empty one."""
        return type(self)(only=self.only)

    def merge(self, other: Self) -> None:
        """Add what another one was shown."""
        for layer, moments in other.norms.items():
            self.norms.setdefault(layer, Moments()).merge(moments)


def estimate_again(backend: ModelBackend, layers: Collection[str], inputs: Inputs) -> dict[tuple[str, str], Array]:
    """Return new scales and biases `(channels,)` of normalisations, by layer and parameter, from some inputs.

    Layers are mended in order of execution: the moments of each are measured behind the mended ones before it. All of
    them are watched and set in every pass, so that a backend compiles one program for all passes; one that need not
    compile ends each pass at its layer.
    """
    uses = {info.name: info.uses for info in backend.layers if info.name in layers}
    ordered = list(uses)
    stored = {layer: backend.read_weights(layer) for layer in ordered}
    mended = {(layer, name): stored[layer][name] for layer in ordered for name in ("scale", "bias")}
    for layer in ordered:
        watch = NormAccumulator(only=(layer, uses[layer]))
        with temporary_weights(backend, mended):
            backend.observe(inputs, ordered, watch)
        moments, weights = watch.norms[layer], stored[layer]
        deviation = np.where(moments.deviation < LEAST_DEVIATION, 1.0, moments.deviation)
        scale, bias = (np.asarray(weights[name], np.float64) for name in ("scale", "bias"))
        dtype = weights["scale"].dtype
        mended[layer, "scale"] = (scale / deviation).astype(dtype)
        mended[layer, "bias"] = (bias - scale * moments.mean / deviation).astype(dtype)
    return mended
