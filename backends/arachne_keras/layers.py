"""From Keras layers to ours: which of them hold repairable weights, and what kind each is.

`KINDS` tells for each Keras class which `Kind` describes it; a new layer is a new entry there and, if it computes
differently, a new subclass of `Kind`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import layers as kl
from keras import ops

from arachne.model.values import Array
from arachne_keras import layout
from arachne_keras.convolution import Convolution, Depthwise, Separable, Transposed
from arachne_keras.kinds import Kind, Layer, Replacements, Watcher
from arachne_keras.parameter_slice import Layout, ParameterSlice
from arachne_keras.recurrent import Recurrent
from arachne_keras.swapping import swap_attributes


class Einsum(Kind):
    """`EinsumDense`, also the four maps of an attention layer, flattened to `(out, in)`."""

    def __init__(self, keras_layer: Any, name: str, shape: Sequence[int | None] | None = None) -> None:
        takes, weight, gives = self.equation(keras_layer)
        self._out = [letter for letter in gives if letter in weight]
        self._in = [letter for letter in weight if letter not in gives]
        self._takes = [*(letter for letter in takes if letter not in self._in), *self._in]
        self._gives = [*(letter for letter in gives if letter not in self._out), *self._out]
        self._letters = takes, weight, gives
        super().__init__(keras_layer, name, shape)

    @staticmethod
    def equation(keras_layer: Any) -> tuple[str, str, str]:
        """Return the letters of the input, the kernel and the output; an ellipsis becomes digits."""
        before, gives = keras_layer.equation.replace(" ", "").split("->")
        takes, weight = before.split(",")
        elided = keras_layer.input_spec.ndim - len(takes.replace("...", "")) if "..." in takes else 0
        digits = "0123456789"[:elided]
        return takes.replace("...", digits), weight, gives.replace("...", digits)

    @classmethod
    def accepts(cls, keras_layer: Any) -> bool:
        """Whether it is one matrix: each axis of the kernel is an axis of either the input or the output."""
        takes, weight, gives = cls.equation(keras_layer)
        return all((letter in takes) != (letter in gives) for letter in weight)

    def weight(self) -> ParameterSlice:
        """Reshape to `(outputs, inputs)`."""
        weight, sizes = self._letters[1], dict(zip(self._letters[1], self.keras.kernel.shape, strict=True))
        axes = [weight.index(letter) for letter in (*self._out, *self._in)]
        shape = [int(np.prod([sizes[letter] for letter in letters])) for letters in (self._out, self._in)]
        return ParameterSlice(self.keras.kernel, Layout.of(self.keras.kernel.shape, axes, shape))

    def entering(self, layer: Layer, values: Array) -> Array:
        """Flatten the summed axes into the last one."""
        return self._flat(values, self._letters[0], self._takes, len(self._in))

    def leaving(self, layer: Layer, values: Array) -> Array:
        """Flatten the output axes into the last one."""
        return self._flat(values, self._letters[2], self._gives, len(self._out))

    def inverse(self, layer: Layer, values: Array) -> Array:
        """The axes as the equation has them."""
        gives = self._letters[2]
        sizes = dict(zip(self._letters[1], self.keras.kernel.shape, strict=True))
        values = values.reshape(*values.shape[:-1], *(sizes[letter] for letter in self._out))
        return values.transpose([self._gives.index(letter) for letter in gives])

    @staticmethod
    def _flat(values: Array, letters: str, order: Sequence[str], last: int) -> Array:
        turned = values.transpose([letters.index(letter) for letter in order])
        kept = turned.shape[: turned.ndim - last]
        return np.ascontiguousarray(
            turned.reshape(*kept, -1 if turned.size else int(np.prod(turned.shape[len(kept) :])))
        )


class Embedding(Kind):
    """Rows of a table; the inputs are row numbers."""

    name = "embedding"

    def find(self, name: str) -> Iterator[Layer]:
        """One table."""
        table = self.keras.embeddings
        yield Layer(name, self, {"weight": ParameterSlice(table, Layout.of(table.shape, (0, 1)))})

    def replacements(self, watcher: Watcher) -> Replacements:
        """Replace the call; a table has no activation to leave out."""

        def call(inputs: Any, *args: Any, **kwargs: Any) -> Any:
            own = self.keras
            return watcher.use(self.layers[0], {"weight": inputs}, lambda: type(own).call(own, inputs, *args, **kwargs))

        return {(self.keras, "call"): call}


class Norm(Kind):
    """Batch, layer, group and RMS normalisation: a scale and a bias for each channel, as vectors."""

    name = "norm"

    def find(self, name: str) -> Iterator[Layer]:
        """Yield a layer with the scale and bias that Keras stores, if any."""
        rms = isinstance(self.keras, kl.RMSNormalization)
        scale = self.keras.scale if rms else self.keras.gamma
        bias = None if rms else self.keras.beta
        stored = {
            key: layout.plain(variable) for key, variable in (("scale", scale), ("bias", bias)) if variable is not None
        }
        if stored:
            yield Layer(name, self, stored)

    def replacements(self, watcher: Watcher) -> Replacements:
        """Report the normalised input, computed by the layer without scale and bias, as the input of the scale."""
        if not self.layers:
            return {}
        own = self.keras

        def call(inputs: Any, *args: Any, **kwargs: Any) -> Any:
            def compute() -> Any:
                return type(own).call(own, inputs, *args, **kwargs)

            entering = {}
            if "scale" in self.layers[0].stored:
                entering["scale"] = self._normalise(compute)
            return watcher.use(self.layers[0], entering, compute)

        return {(own, "call"): call}

    def entering(self, layer: Layer, values: Array) -> Array:
        """Move the channels of batch and group normalisation to axis 1, as in `leaving`."""
        return self.leaving(layer, values)

    def leaving(self, layer: Layer, values: Array) -> Array:
        """Move the channels of batch and group normalisation to axis 1."""
        return np.ascontiguousarray(np.moveaxis(values, self._channels, 1)) if self._has_channel_axis else values

    def inverse(self, layer: Layer, values: Array) -> Array:
        """Channels where the model has them."""
        return np.moveaxis(values, 1, self._channels) if self._has_channel_axis else values

    def _normalise(self, compute: Callable[[], Any]) -> Any:
        own = self.keras
        plain: dict[tuple[Any, str], Any] = {(own, "scale"): False, (own, "center"): False}
        if isinstance(own, kl.RMSNormalization):
            plain = {(own, "scale"): ops.ones_like(own.scale)}
        elif isinstance(own, kl.LayerNormalization):  # it asks for the variables themselves
            plain = {(own, "gamma"): ops.ones_like(own.gamma), (own, "beta"): None}
        with swap_attributes(plain):
            return compute()

    @property
    def _has_channel_axis(self) -> bool:
        return isinstance(self.keras, (kl.BatchNormalization, kl.GroupNormalization))

    @property
    def _channels(self) -> int:
        axis = self.keras.axis
        return int(axis[0] if isinstance(axis, (list, tuple)) else axis)


KINDS: Mapping[type, type[Kind]] = {
    kl.Dense: Kind,
    kl.EinsumDense: Einsum,
    kl.Conv1D: Convolution,
    kl.Conv2D: Convolution,
    kl.Conv3D: Convolution,
    kl.DepthwiseConv1D: Depthwise,
    kl.DepthwiseConv2D: Depthwise,
    kl.SeparableConv1D: Separable,
    kl.SeparableConv2D: Separable,
    kl.Conv1DTranspose: Transposed,
    kl.Conv2DTranspose: Transposed,
    kl.Conv3DTranspose: Transposed,
    kl.LSTM: Recurrent,
    kl.GRU: Recurrent,
    kl.SimpleRNN: Recurrent,
    kl.RNN: Recurrent,
    kl.Embedding: Embedding,
    kl.BatchNormalization: Norm,
    kl.LayerNormalization: Norm,
    kl.GroupNormalization: Norm,
    kl.RMSNormalization: Norm,
}
"""The Keras classes with repairable weights, by the class that wrote their `call`."""


def kinds_in(operation: Any, prefix: str, shape: Sequence[int | None] | None, top: bool = False) -> Iterator[Kind]:
    """Everything with repairable weights in a Keras layer, in the order in which Keras made it.

    Args:
        operation: The layer, or an operation, which has none.
        prefix: The prefix of the names.
        shape: Shape of its input, if known.
        top: Whether it is the whole model, whose name is not part of layer names.
    """
    if not isinstance(operation, keras.Layer):
        return
    name = prefix if top else f"{prefix}{operation.name}"
    kind = kind_of(operation)
    if kind is not None:
        yield kind(operation, name, shape)
        return
    for child in operation._flatten_layers(include_self=False, recursive=False):
        for found in kinds_in(child, prefix if top else f"{name}/", _built_shape(child)):
            if isinstance(operation, kl.TimeDistributed) and found.keras is child:
                found.wrapper = operation
            yield found


def kind_of(layer: Any) -> type[Kind] | None:
    """The kind of a Keras layer; None for one without repairable weights or with its own `call`."""
    if not layer.built or getattr(layer, "quantization_mode", None) or getattr(layer, "lora_enabled", False):
        return None
    own: Any
    for own, kind in KINDS.items():
        if isinstance(layer, own) and type(layer).call is own.call:
            return kind if kind.accepts(layer) else None
    return None


def _built_shape(layer: Any) -> Sequence[int | None] | None:
    shapes = getattr(layer, "_build_shapes_dict", None) or {}
    shape = shapes.get("input_shape")
    return shape if isinstance(shape, (tuple, list)) and all(d is None or isinstance(d, int) for d in shape) else None
