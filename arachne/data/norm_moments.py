"""Moments of what enters the scale of normalisations, by channel: 0 and 1 where stored statistics fit the inputs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import numpy as np

from arachne.model.accumulate import ActivationAccumulator
from arachne.model.cut import temporary_weights
from arachne.model.values import Activation, Array, Inputs

if TYPE_CHECKING:
    from arachne.model.backend import ModelBackend

SAME = 1e-2
"""Moments of single inputs this close to 0 and 1 show a norm without stored statistics."""

LEAST_DEVIATION = 1e-3
"""A channel that hardly varies on these inputs keeps its deviation: dividing by it would blow noise up."""


@dataclass
class Moments:
    """Sums over inputs and positions for each channel `(channels,)`, and the moments of single inputs."""

    number: int = 0
    first: Array = field(default_factory=lambda: np.zeros(0))
    second: Array = field(default_factory=lambda: np.zeros(0))
    by_input: list[tuple[float, float]] = field(default_factory=list)

    def add(self, values: Array) -> None:
        """Add what enters a scale, `(n, channels, ...)`."""
        flat = values.reshape(len(values), -1)
        others = tuple(axis for axis in range(values.ndim) if axis != 1)
        self.merge(
            Moments(
                values.size // values.shape[1],
                values.sum(axis=others),
                (values**2).sum(axis=others),
                list(zip(flat.mean(axis=1).tolist(), (flat**2).mean(axis=1).tolist(), strict=True)),
            )
        )

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
    """Adds up the moments behind the normalisations that it is shown."""

    norms: dict[str, Moments] = field(default_factory=dict)

    def activation(self, layer: str, use: int, activation: Activation) -> None:
        """Add one batch."""
        if "scale" in activation.entering:
            self.norms.setdefault(layer, Moments()).add(np.asarray(activation.entering["scale"], np.float64))

    def gradient(self, layer: str, use: int, gradient: Array) -> None:
        """Nothing: no gradients are asked for."""

    def split(self) -> Self:
        """Return an empty one."""
        return type(self)()

    def merge(self, other: Self) -> None:
        """Add what another one was shown."""
        for layer, moments in other.norms.items():
            self.norms.setdefault(layer, Moments()).merge(moments)


def estimate_again(backend: ModelBackend, layers: Collection[str], inputs: Inputs) -> dict[tuple[str, str], Array]:
    """Return new scales and biases `(channels,)` of normalisations, by layer and parameter, from some inputs.

    Layers are mended in order of execution: the moments of each are measured behind the mended ones before it. All of
    them are watched and set in every pass, so that a backend compiles one program for all passes.
    """
    ordered = [info.name for info in backend.layers if info.name in layers]
    stored = {layer: backend.read_weights(layer) for layer in ordered}
    mended = {(layer, name): stored[layer][name] for layer in ordered for name in ("scale", "bias")}
    for layer in ordered:
        watch = NormAccumulator()
        with temporary_weights(backend, mended):
            backend.observe(inputs, ordered, watch)
        moments, weights = watch.norms[layer], stored[layer]
        deviation = np.where(moments.deviation < LEAST_DEVIATION, 1.0, moments.deviation)
        scale, bias = (np.asarray(weights[name], np.float64) for name in ("scale", "bias"))
        dtype = weights["scale"].dtype
        mended[layer, "scale"] = (scale / deviation).astype(dtype)
        mended[layer, "bias"] = (bias - scale * moments.mean / deviation).astype(dtype)
    return mended
