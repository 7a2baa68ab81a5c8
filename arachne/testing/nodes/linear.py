"""Layers that multiply with one weight: dense, convolution, transposed convolution, embedding."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from arachne.model.values import Array, Geometry
from arachne.testing import sliding
from arachne.testing.nodes.base import Arrays, Layer, Parameters


@dataclass(frozen=True, eq=False)
class Dense(Layer):
    """z = W x + b over the last axis: weight `(out, in)`, bias `(out,)`."""

    weight: Array
    bias: Array | None = None

    kind = "dense"

    def forward(self, inputs: Arrays, weights: Parameters) -> Array:
        z: Array = inputs[0] @ weights["weight"].T
        return z + weights["bias"] if "bias" in weights else z

    def backward(self, gradient: Array, inputs: Arrays, output: Array, weights: Parameters) -> tuple[Array, ...]:
        return (gradient @ weights["weight"],)

    def weight_gradients(self, gradient: Array, inputs: Arrays, weights: Parameters) -> dict[str, Array]:
        dz = gradient.reshape(-1, gradient.shape[-1])
        x = inputs[0].reshape(-1, inputs[0].shape[-1])
        gradients: dict[str, Array] = {"weight": dz.T @ x}
        return gradients | {"bias": dz.sum(axis=0)} if "bias" in weights else gradients


@dataclass(frozen=True, eq=False)
class Sliding(Layer):
    """A layer whose kernel slides over 1, 2 or 3 spatial axes.

    Attributes:
        stride: One number for each spatial axis; 1 where it is left out.
        padding: Zeros before and after, one pair for each spatial axis.
        dilation: One number for each spatial axis.
        groups: Number of groups the channels fall into.
    """

    weight: Array
    bias: Array | None = None
    stride: tuple[int, ...] = ()
    padding: tuple[tuple[int, int], ...] = ()
    dilation: tuple[int, ...] = ()
    groups: int = 1

    CHANNEL_AXIS = 1

    @property
    def geometry(self) -> Geometry:
        axes = self.weight.ndim - 2
        return Geometry(
            self.stride or (1,) * axes, self.padding or ((0, 0),) * axes, self.dilation or (1,) * axes, self.groups
        )


class Conv(Sliding):
    """A convolution: weight `(out, in / groups, *kernel)`, bias `(out,)`."""

    kind = "conv"

    def forward(self, inputs: Arrays, weights: Parameters) -> Array:
        z = sliding.convolve(inputs[0], weights["weight"], self.geometry)
        return z + sliding.per_channel(weights["bias"], z.ndim) if "bias" in weights else z

    def backward(self, gradient: Array, inputs: Arrays, output: Array, weights: Parameters) -> tuple[Array, ...]:
        return (sliding.input_gradient(gradient, inputs[0].shape, weights["weight"], self.geometry),)

    def weight_gradients(self, gradient: Array, inputs: Arrays, weights: Parameters) -> dict[str, Array]:
        shape = weights["weight"].shape
        gradients = {"weight": sliding.weight_gradient(gradient, inputs[0], shape, self.geometry)}
        positions = (0, *range(2, gradient.ndim))
        return gradients | {"bias": gradient.sum(axis=positions)} if "bias" in weights else gradients


class ConvTranspose(Sliding):
    """A transposed convolution: weight `(in, out / groups, *kernel)`, bias `(out,)`.

    It is the gradient of a convolution from its own output to its own input, and has that convolution's weight and
    geometry: a stride spreads the inputs out, a padding is cut off the outputs.
    """

    kind = "conv_transpose"

    def forward(self, inputs: Arrays, weights: Parameters) -> Array:
        weight, walk = weights["weight"], self.geometry
        lengths = [
            (length - 1) * stride + dilation * (size - 1) + 1 - before - after
            for length, size, stride, (before, after), dilation in zip(
                inputs[0].shape[2:], weight.shape[2:], walk.stride, walk.padding, walk.dilation, strict=True
            )
        ]
        shape = (len(inputs[0]), weight.shape[1] * walk.groups, *lengths)
        z = sliding.input_gradient(inputs[0], shape, weight, walk)
        return z + sliding.per_channel(weights["bias"], z.ndim) if "bias" in weights else z

    def backward(self, gradient: Array, inputs: Arrays, output: Array, weights: Parameters) -> tuple[Array, ...]:
        return (sliding.convolve(gradient, weights["weight"], self.geometry),)

    def weight_gradients(self, gradient: Array, inputs: Arrays, weights: Parameters) -> dict[str, Array]:
        shape = weights["weight"].shape
        gradients = {"weight": sliding.weight_gradient(inputs[0], gradient, shape, self.geometry)}
        positions = (0, *range(2, gradient.ndim))
        return gradients | {"bias": gradient.sum(axis=positions)} if "bias" in weights else gradients


@dataclass(frozen=True, eq=False)
class Embedding(Layer):
    """Rows of a table looked up by number: weight `(rows, width)`; `(n, ...)` numbers give `(n, ..., width)`."""

    weight: Array

    kind = "embedding"
    PARAMETERS = ("weight",)

    def forward(self, inputs: Arrays, weights: Parameters) -> Array:
        rows: Array = weights["weight"][inputs[0].astype(np.int64)]
        return rows

    def backward(self, gradient: Array, inputs: Arrays, output: Array, weights: Parameters) -> tuple[Array, ...]:
        return (np.zeros_like(inputs[0]),)  # a row number has no gradient

    def weight_gradients(self, gradient: Array, inputs: Arrays, weights: Parameters) -> dict[str, Array]:
        total = np.zeros_like(weights["weight"])
        np.add.at(total, inputs[0].astype(np.int64), gradient)
        return {"weight": total}
