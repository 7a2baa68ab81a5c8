"""Nodes without weights: activations, pooling, and what joins or reshapes values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from arachne.model.values import Array, Geometry
from arachne.testing import sliding
from arachne.testing.nodes.base import Arrays, Node, Parameters


class Relu(Node):
    """max(x, 0); its gradient at 0 is 0."""

    def forward(self, inputs: Arrays, weights: Parameters) -> Array:
        return np.maximum(inputs[0], 0)

    def backward(self, gradient: Array, inputs: Arrays, output: Array, weights: Parameters) -> tuple[Array, ...]:
        return (gradient * (inputs[0] > 0),)


class Tanh(Node):
    """tanh(x)."""

    def forward(self, inputs: Arrays, weights: Parameters) -> Array:
        return np.tanh(inputs[0])

    def backward(self, gradient: Array, inputs: Arrays, output: Array, weights: Parameters) -> tuple[Array, ...]:
        return (gradient * (1 - output * output),)


class Sigmoid(Node):
    """1 / (1 + exp(-x)), as (1 + tanh(x / 2)) / 2, which never overflows."""

    def forward(self, inputs: Arrays, weights: Parameters) -> Array:
        return (1 + np.tanh(inputs[0] / 2)) / 2

    def backward(self, gradient: Array, inputs: Arrays, output: Array, weights: Parameters) -> tuple[Array, ...]:
        return (gradient * output * (1 - output),)


@dataclass(frozen=True, eq=False)
class Pool(Node):
    """Pooling over windows of `size`, `stride` apart (`size` where it is left out); nothing is padded."""

    size: tuple[int, ...]
    stride: tuple[int, ...] = ()

    @property
    def geometry(self) -> Geometry:
        """Pooling walks over its input as a convolution does."""
        axes = len(self.size)
        return Geometry(self.stride or self.size, ((0, 0),) * axes, (1,) * axes)


class MaxPool(Pool):
    """The largest of each window; the first of several equal ones takes the gradient."""

    def forward(self, inputs: Arrays, weights: Parameters) -> Array:
        largest: Array = sliding.windows(inputs[0], self.size, self.geometry).max(axis=0)
        return largest

    def backward(self, gradient: Array, inputs: Arrays, output: Array, weights: Parameters) -> tuple[Array, ...]:
        seen = sliding.windows(inputs[0], self.size, self.geometry)
        offsets = np.arange(len(seen)).reshape(-1, *(1,) * gradient.ndim)
        shares = gradient * (seen.argmax(axis=0) == offsets)
        return (sliding.scatter(shares, inputs[0].shape, self.size, self.geometry),)


class AveragePool(Pool):
    """The mean of each window."""

    def forward(self, inputs: Arrays, weights: Parameters) -> Array:
        mean: Array = sliding.windows(inputs[0], self.size, self.geometry).mean(axis=0)
        return mean

    def backward(self, gradient: Array, inputs: Arrays, output: Array, weights: Parameters) -> tuple[Array, ...]:
        elements = int(np.prod(self.size))
        shares = np.broadcast_to(gradient / elements, (elements, *gradient.shape))
        return (sliding.scatter(shares, inputs[0].shape, self.size, self.geometry),)


class Flatten(Node):
    """All axes but the first in one, channels slowest: `(n, channels * positions)`."""

    def forward(self, inputs: Arrays, weights: Parameters) -> Array:
        # A shape of -1 is ambiguous when there are no inputs at all.
        return inputs[0].reshape(len(inputs[0]), int(np.prod(inputs[0].shape[1:])))

    def backward(self, gradient: Array, inputs: Arrays, output: Array, weights: Parameters) -> tuple[Array, ...]:
        return (gradient.reshape(inputs[0].shape),)


class Add(Node):
    """The sum of several values of one shape: a residual connection, or branches that meet."""

    def forward(self, inputs: Arrays, weights: Parameters) -> Array:
        total = inputs[0]
        for value in inputs[1:]:
            total = total + value
        return total

    def backward(self, gradient: Array, inputs: Arrays, output: Array, weights: Parameters) -> tuple[Array, ...]:
        return tuple(gradient for _ in inputs)


class Concat(Node):
    """Several values side by side along axis 1, the axis of features or channels."""

    def forward(self, inputs: Arrays, weights: Parameters) -> Array:
        return np.concatenate(inputs, axis=1)

    def backward(self, gradient: Array, inputs: Arrays, output: Array, weights: Parameters) -> tuple[Array, ...]:
        edges = np.cumsum([value.shape[1] for value in inputs])[:-1]
        return tuple(np.split(gradient, edges, axis=1))


class Softmax(Node):
    """Class probabilities out of scores, along the last axis; as a network's last node it is removed."""

    def forward(self, inputs: Arrays, weights: Parameters) -> Array:
        exponentials = np.exp(inputs[0] - inputs[0].max(axis=-1, keepdims=True))
        probabilities: Array = exponentials / exponentials.sum(axis=-1, keepdims=True)
        return probabilities

    def backward(self, gradient: Array, inputs: Arrays, output: Array, weights: Parameters) -> tuple[Array, ...]:
        return (output * (gradient - (gradient * output).sum(axis=-1, keepdims=True)),)


class TwoClasses(Node):
    """One score z `(n, 1)` as the scores (0, z) of two classes: what a single sigmoid output means."""

    def forward(self, inputs: Arrays, weights: Parameters) -> Array:
        return np.concatenate([np.zeros_like(inputs[0]), inputs[0]], axis=1)

    def backward(self, gradient: Array, inputs: Arrays, output: Array, weights: Parameters) -> tuple[Array, ...]:
        return (gradient[:, 1:],)
