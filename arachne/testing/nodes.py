"""The nodes a reference network is made of: what each computes, and its gradient written out by hand.

A node has a name, the names of the values it takes, and two formulas. `forward` gives its value; `backward` takes the
gradient of some number with respect to that value and gives the gradient with respect to each of its inputs. Nodes that
hold weights are layers, and have a third: the gradient with respect to the weights.

The classes are also the words of a network spec: a plug-in author's factory walks over `Network.nodes` and builds its
own framework's layer for each.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from arachne.testing import sliding
from arachne.values import Array, Geometry

Arrays = Sequence[Array]
Parameters = Mapping[str, Array]


@dataclass(frozen=True, eq=False)
class Node(ABC):
    """One step of a network.

    Attributes:
        name: The name of the value it computes; for a layer, the layer's name.
        inputs: The values it takes: the name of an input or of an earlier node, or several.
    """

    name: str
    inputs: str | tuple[str, ...]

    @property
    def sources(self) -> tuple[str, ...]:
        """The names of the values it takes, always as a tuple."""
        return (self.inputs,) if isinstance(self.inputs, str) else tuple(self.inputs)

    @abstractmethod
    def forward(self, inputs: Arrays, weights: Parameters) -> Array:
        """The node's value `(n, ...)`; `weights` are those of its layer and empty for other nodes."""

    @abstractmethod
    def backward(self, gradient: Array, inputs: Arrays, output: Array, weights: Parameters) -> tuple[Array, ...]:
        """The gradient with respect to each input, given `gradient` with respect to `output`, of the same shape."""


@dataclass(frozen=True, eq=False)
class Layer(Node):
    """A node with weights, in the canonical layout of `arachne.values`."""

    weight: Array
    bias: Array | None = None

    kind: ClassVar[str]

    @property
    def parameters(self) -> dict[str, Array]:
        """What it stores, by canonical name."""
        return {"weight": self.weight} if self.bias is None else {"weight": self.weight, "bias": self.bias}

    @property
    def geometry(self) -> Geometry | None:
        """How a convolution walks over its input; None for other layers."""
        return None

    @abstractmethod
    def weight_gradients(self, gradient: Array, inputs: Arrays, weights: Parameters) -> dict[str, Array]:
        """The gradient with respect to every parameter, summed over the inputs."""


@dataclass(frozen=True, eq=False)
class Dense(Layer):
    """z = W x + b over the last axis: weight `(out, in)`, bias `(out,)`."""

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
class Conv(Layer):
    """A convolution over 1, 2 or 3 spatial axes: weight `(out, in / groups, *kernel)`, bias `(out,)`.

    Attributes:
        stride: One number for each spatial axis; 1 where it is left out.
        padding: Zeros before and after, one pair for each spatial axis.
        dilation: One number for each spatial axis.
        groups: Number of groups the channels fall into.
    """

    stride: tuple[int, ...] = ()
    padding: tuple[tuple[int, int], ...] = ()
    dilation: tuple[int, ...] = ()
    groups: int = 1

    kind = "conv"

    @property
    def geometry(self) -> Geometry:
        axes = self.weight.ndim - 2
        return Geometry(
            self.stride or (1,) * axes, self.padding or ((0, 0),) * axes, self.dilation or (1,) * axes, self.groups
        )

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


@dataclass(frozen=True, eq=False)
class Reuse(Node):
    """Another use of an earlier layer, with the very same weights; the network looks the layer up."""

    layer: str

    def forward(self, inputs: Arrays, weights: Parameters) -> Array:
        raise NotImplementedError("a network asks the layer itself")

    def backward(self, gradient: Array, inputs: Arrays, output: Array, weights: Parameters) -> tuple[Array, ...]:
        raise NotImplementedError("a network asks the layer itself")


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
    """Class probabilities out of scores, along the last axis; as a network's last node it is looked behind."""

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
