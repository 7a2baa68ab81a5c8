"""Normalising layers: a scale and a bias for each channel, applied to a normalised input."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from arachne.model.values import Array
from arachne.testing import sliding
from arachne.testing.nodes.base import Arrays, Layer, Parameters


@dataclass(frozen=True, eq=False)
class Norm(Layer):
    """z = scale × normalise(x) + bias: scale `(channels,)`, bias `(channels,)`."""

    scale: Array
    bias: Array

    kind = "norm"
    PARAMETERS = ("scale", "bias")

    @abstractmethod
    def normalise(self, x: Array) -> Array:
        """Normalise the input; the result is multiplied with the scale."""

    def forward(self, inputs: Arrays, weights: Parameters) -> Array:
        x = self.normalise(inputs[0])
        return x * self._along(weights["scale"], x) + self._along(weights["bias"], x)

    def weight_gradients(self, gradient: Array, inputs: Arrays, weights: Parameters) -> dict[str, Array]:
        others = tuple(axis for axis in range(gradient.ndim) if axis != self.CHANNEL_AXIS % gradient.ndim)
        scale = (gradient * self.normalise(inputs[0])).sum(axis=others)
        return {"scale": scale, "bias": gradient.sum(axis=others)}

    def entering(self, inputs: Arrays, weights: Parameters) -> dict[str, Array]:
        return {"scale": self.normalise(inputs[0])}

    def _along(self, values: Array, x: Array) -> Array:
        """`(channels,)` in a shape that fits the channels of `x`."""
        return sliding.per_channel(values, x.ndim) if self.CHANNEL_AXIS == 1 else values


@dataclass(frozen=True, eq=False)
class BatchNorm(Norm):
    """Batch normalisation in evaluation mode, channels on axis 1: (x − mean) / sqrt(variance + epsilon).

    Attributes:
        mean: `(channels,)`, as found in training; not a parameter that is repaired.
        variance: `(channels,)`, likewise.
        epsilon: Added to the variance.
    """

    mean: Array
    variance: Array
    epsilon: float = 1e-3

    CHANNEL_AXIS = 1
    STATISTICS = ("mean", "variance")

    def normalise(self, x: Array) -> Array:
        normal: Array = (x - self._along(self.mean, x).astype(x.dtype)) / self._deviation(x)
        return normal

    def backward(self, gradient: Array, inputs: Arrays, output: Array, weights: Parameters) -> tuple[Array, ...]:
        return (gradient * self._along(weights["scale"], gradient) / self._deviation(gradient),)

    def _deviation(self, x: Array) -> Array:
        deviation: Array = np.sqrt(self._along(self.variance, x).astype(x.dtype) + self.epsilon)
        return deviation


@dataclass(frozen=True, eq=False)
class LayerNorm(Norm):
    """Layer normalisation over the last axis: (x − mean(x)) / sqrt(variance(x) + epsilon).

    Attributes:
        epsilon: Added to the variance.
    """

    epsilon: float = 1e-3

    def normalise(self, x: Array) -> Array:
        centred = x - x.mean(axis=-1, keepdims=True)
        normal: Array = centred / self._deviation(x)
        return normal

    def backward(self, gradient: Array, inputs: Arrays, output: Array, weights: Parameters) -> tuple[Array, ...]:
        # d x̂ has its mean taken out, because the mean of x is; and its part along x̂, because the variance of x is.
        normal, dx = self.normalise(inputs[0]), gradient * weights["scale"]
        mean, along = dx.mean(axis=-1, keepdims=True), (dx * normal).mean(axis=-1, keepdims=True)
        return ((dx - mean - normal * along) / self._deviation(inputs[0]),)

    def _deviation(self, x: Array) -> Array:
        deviation: Array = np.sqrt(x.var(axis=-1, keepdims=True) + self.epsilon)
        return deviation
