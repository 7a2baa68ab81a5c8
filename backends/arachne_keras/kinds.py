"""`Kind`: how a Keras layer stores and uses its weights; this class is for dense layers, subclasses for the others.

A kind has *replacements* for a layer's methods, which are used while the layer is watched: they compute the same and
report the inputs, and the outputs before the non-linearity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import keras

from arachne.model.values import Array, Geometry, LayerInfo, ParameterInfo
from arachne_keras import layout
from arachne_keras.parameter_slice import ParameterSlice
from arachne_keras.swapping import swap_attributes

Replacements = dict[tuple[Any, str], Any]
"""Replacements of attributes while an object is watched."""


class Watcher(Protocol):
    """Receives the uses of layers while a model runs."""

    def use(self, layer: Layer, entering: Mapping[str, Any], compute: Callable[[], Any]) -> Any:
        """Report a use: the input of each weight and a function for the output; return the output to continue with."""

    def begin(self, layer: Layer) -> object:
        """Begin a use of several steps."""

    def step(self, layer: Layer, entering: Mapping[str, Any], gates: Sequence[Any]) -> list[Any]:
        """Report one step: the gates before their non-linearities; return the gates to continue with."""


@dataclass(frozen=True)
class Layer:
    """A repairable layer.

    Attributes:
        name: Its name; nested layers have their parents' names before theirs.
        kind: What kind of Keras layer it is part of.
        stored: Its parameters.
        part: Which part of the Keras layer it is, where that holds several (`depthwise`, `pointwise`).
    """

    name: str
    kind: Kind
    stored: Mapping[str, ParameterSlice]
    part: str = ""

    def info(self, *, uses: int = 1, followed_by: tuple[str, ...] | None = None) -> LayerInfo:
        """Its `LayerInfo`."""
        parameters = {
            name: ParameterInfo(stored.layout.shape, str(stored.variable.dtype)) for name, stored in self.stored.items()
        }
        return LayerInfo(self.name, self.kind.name, parameters, self.kind.geometry(self), uses, followed_by)


class Kind:
    """How one Keras layer stores and uses its weights.

    Attributes:
        name: The kind's name in `LayerInfo`.
        keras: The Keras layer.
        shape: Shape of its input, if known; None for axes of any length.
        padding: Zeros that a padding layer before it adds; part of a convolution's geometry.
        wrapper: The `TimeDistributed` it is in, if any.
    """

    name = "dense"

    def __init__(self, keras_layer: Any, name: str, shape: Sequence[int | None] | None = None) -> None:
        self.keras = keras_layer
        self.shape = None if shape is None else tuple(shape)
        self.padding: tuple[tuple[int, int], ...] = ()
        self.wrapper: Any = None
        self.layers = tuple(self.find(name))

    @classmethod
    def accepts(cls, keras_layer: Any) -> bool:
        """Whether a Keras layer of the right class is of this kind."""
        return True

    def find(self, name: str) -> Iterator[Layer]:
        """The repairable layers it is or holds."""
        bias = {} if self.keras.bias is None else {"bias": layout.plain(self.keras.bias)}
        yield Layer(name, self, {"weight": self.weight(), **bias})

    def weight(self) -> ParameterSlice:
        """The matrix or kernel of a layer that has one."""
        return layout.dense(self.keras.kernel)

    def geometry(self, layer: Layer) -> Geometry | None:
        """Return the geometry of a convolution."""
        return None

    def replacements(self, watcher: Watcher) -> Replacements:
        """Replace the Keras layer's methods while it is watched."""

        def call(inputs: Any, *args: Any, **kwargs: Any) -> Any:
            def compute() -> Any:
                with swap_attributes({(self.keras, "activation"): keras.activations.linear}):
                    return type(self.keras).call(self.keras, inputs, *args, **kwargs)

            return self.keras.activation(watcher.use(self.layers[0], {"weight": inputs}, compute))

        return {(self.keras, "call"): call}

    def entering(self, layer: Layer, values: Array) -> Array:
        """Convert an input to the contract's layout."""
        return values

    def leaving(self, layer: Layer, values: Array) -> Array:
        """Convert an output to the contract's layout."""
        return values

    def inverse(self, layer: Layer, values: Array) -> Array:
        """Convert an output back to Keras' layout; the inverse of `leaving`."""
        return values
