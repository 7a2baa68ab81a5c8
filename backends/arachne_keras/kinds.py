"""`Kind`: how one Keras layer holds, computes and shows its weights; here for a dense layer, elsewhere for the others.

A kind gives *stand-ins*: functions that take the place of a layer's methods while it is watched, compute the same, and
show what enters and what leaves before the non-linearity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import keras

from arachne.values import Array, Geometry, LayerInfo, ParameterInfo
from arachne_keras import layout
from arachne_keras.stored import Stored
from arachne_keras.swapping import swapped

StandIns = dict[tuple[Any, str], Any]
"""What takes the place of an object's attribute while it is watched."""


class Watcher(Protocol):
    """Who looks on while a model runs."""

    def use(self, layer: Layer, entering: Mapping[str, Any], compute: Callable[[], Any]) -> Any:
        """One use of a layer: what enters each weight, and how to compute what leaves; returns what goes on."""

    def begin(self, layer: Layer) -> object:
        """A use begins that comes in steps."""

    def step(self, layer: Layer, entering: Mapping[str, Any], gates: Sequence[Any]) -> list[Any]:
        """One step of such a use: the gates before their non-linearities; returns those to go on with."""


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
    stored: Mapping[str, Stored]
    part: str = ""

    def info(self, *, uses: int = 1, followed_by: tuple[str, ...] | None = None) -> LayerInfo:
        """Its `LayerInfo`."""
        parameters = {
            name: ParameterInfo(stored.layout.shape, str(stored.variable.dtype)) for name, stored in self.stored.items()
        }
        return LayerInfo(self.name, self.kind.name, parameters, self.kind.geometry(self), uses, followed_by)


class Kind:
    """How one Keras layer holds, computes and shows its weights.

    Attributes:
        name: The kind's name in `LayerInfo`.
        keras: The Keras layer.
        shape: Shape of what enters it, where that is known; None for axes of any length.
        padding: Zeros that a padding layer before it adds; folded into a convolution's geometry.
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
        """Whether a Keras layer of the right class is of this kind after all."""
        return True

    def find(self, name: str) -> Iterator[Layer]:
        """The repairable layers it is or holds."""
        bias = {} if self.keras.bias is None else {"bias": layout.plain(self.keras.bias)}
        yield Layer(name, self, {"weight": self.weight(), **bias})

    def weight(self) -> Stored:
        """The matrix or kernel of a layer that has one."""
        return layout.dense(self.keras.kernel)

    def geometry(self, layer: Layer) -> Geometry | None:
        """How a convolution walks over its input."""
        return None

    def stand_ins(self, watcher: Watcher) -> StandIns:
        """What takes the place of the Keras layer's methods while it is watched."""

        def call(inputs: Any, *args: Any, **kwargs: Any) -> Any:
            def compute() -> Any:
                with swapped({(self.keras, "activation"): keras.activations.linear}):
                    return type(self.keras).call(self.keras, inputs, *args, **kwargs)

            return self.keras.activation(watcher.use(self.layers[0], {"weight": inputs}, compute))

        return {(self.keras, "call"): call}

    def entering(self, layer: Layer, values: Array) -> Array:
        """What enters, as the contract has it."""
        return values

    def leaving(self, layer: Layer, values: Array) -> Array:
        """What leaves, as the contract has it."""
        return values

    def inverse(self, layer: Layer, values: Array) -> Array:
        """What leaves, as Keras has it; the inverse of `leaving`."""
        return values
