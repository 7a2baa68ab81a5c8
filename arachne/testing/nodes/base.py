"""Node: one step of a network; and Layer: a node with weights."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from arachne.model.values import Array, Geometry

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
    """A node with weights, in the canonical layout of `arachne.model.values`."""

    kind: ClassVar[str]
    """Its name in `LayerInfo.kind`."""

    PARAMETERS: ClassVar[tuple[str, ...]] = ("weight", "bias")
    """The fields that hold its parameters, in canonical order; one that is None is not stored."""

    STATISTICS: ClassVar[tuple[str, ...]] = ()
    """The fields that hold arrays which are fixed, such as the mean of a batch norm."""

    CHANNEL_AXIS: ClassVar[int] = -1
    """The axis of what leaves the layer that its bias runs along."""

    LEAVES_ITS_VALUE: ClassVar[bool] = True
    """Whether what leaves the layer, as `Activation.leaving` means it, is the value that the next node takes."""

    @property
    def parameters(self) -> dict[str, Array]:
        """The stored arrays, by canonical name."""
        stored = {name: getattr(self, name) for name in self.PARAMETERS}
        return {name: values for name, values in stored.items() if values is not None}

    @property
    def geometry(self) -> Geometry | None:
        """Stride, padding and the like of a convolution; None for other layers."""
        return None

    @abstractmethod
    def weight_gradients(self, gradient: Array, inputs: Arrays, weights: Parameters) -> dict[str, Array]:
        """The gradient with respect to every parameter, summed over the inputs."""

    def entering(self, inputs: Arrays, weights: Parameters) -> dict[str, Array]:
        """Return, for each weight parameter, the array it is multiplied with."""
        return {"weight": inputs[0]}

    def leaving(self, inputs: Arrays, output: Array, weights: Parameters) -> Array:
        """Return the layer's outputs before the non-linearity; `output` is the node's value."""
        return output

    def leaving_gradient(self, gradient: Array, inputs: Arrays, weights: Parameters) -> Array:
        """The gradient with respect to what leaves the layer, given the one with respect to the node's value."""
        return gradient


@dataclass(frozen=True, eq=False)
class Reuse(Node):
    """Another use of an earlier layer, with the very same weights; the network looks the layer up."""

    layer: str

    def forward(self, inputs: Arrays, weights: Parameters) -> Array:
        raise NotImplementedError("a network asks the layer itself")

    def backward(self, gradient: Array, inputs: Arrays, output: Array, weights: Parameters) -> tuple[Array, ...]:
        raise NotImplementedError("a network asks the layer itself")
