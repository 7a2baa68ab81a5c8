"""Convolutions: plain, depthwise, separable and transposed, over one to three axes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from keras import ops

from arachne.model.values import Array, Geometry
from arachne_keras import layout
from arachne_keras.kinds import Kind, Layer, Replacements, Watcher
from arachne_keras.parameter_slice import ParameterSlice


class Convolution(Kind):
    """Convolutions over one to three axes, channels last or first."""

    name = "conv"

    def weight(self) -> ParameterSlice:
        """The kernel."""
        return layout.kernel(self.keras.kernel)

    def geometry(self, layer: Layer) -> Geometry:
        """Padding in numbers; `same` with a stride depends on the length, a multiple of the stride where unknown."""
        stride, dilation = tuple(self.keras.strides), tuple(self.keras.dilation_rate)
        kernel = tuple(self.keras.kernel_size)
        padding = self._padding(stride, dilation, kernel)
        if self.padding:
            padding = tuple((a + c, b + d) for (a, b), (c, d) in zip(padding, self.padding, strict=True))
        return Geometry(stride, padding, dilation, self.groups())

    def groups(self) -> int:
        """Number of groups."""
        return int(self.keras.groups)

    def entering(self, layer: Layer, values: Array) -> Array:
        """`(n, channels, *positions)`, without the zeros of a padding layer before it."""
        inner = tuple(slice(a, size - b) for (a, b), size in zip(self.padding, self._sizes(values.shape), strict=False))
        values = self._channels_first(values)
        return values[(slice(None), slice(None), *inner)] if inner else values

    def leaving(self, layer: Layer, values: Array) -> Array:
        """`(n, channels, *positions)`."""
        return self._channels_first(values)

    def inverse(self, layer: Layer, values: Array) -> Array:
        """Channels where the model has them."""
        return np.moveaxis(values, 1, -1) if self._last else values

    @property
    def _last(self) -> bool:
        return bool(self.keras.data_format == "channels_last")

    def _channels_first(self, values: Array) -> Array:
        return np.ascontiguousarray(np.moveaxis(values, -1, 1)) if self._last else values

    def _sizes(self, shape: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(shape[1:-1] if self._last else shape[2:])

    def _padding(
        self, stride: tuple[int, ...], dilation: tuple[int, ...], kernel: tuple[int, ...]
    ) -> tuple[tuple[int, int], ...]:
        spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
        if self.keras.padding == "causal":
            return ((spans[0] - 1, 0),)
        if isinstance(self.keras.padding, (list, tuple)):
            pairs = [(p, p) if isinstance(p, int) else p for p in self.keras.padding]
            return tuple((int(before), int(after)) for before, after in pairs)
        if self.keras.padding == "valid":
            return ((0, 0),) * len(kernel)
        lengths = (None,) * len(kernel) if self.shape is None else self._sizes(self.shape)
        found = []
        for span, step, length in zip(spans, stride, lengths, strict=True):
            last = 0 if length is None else (length - 1) % step + 1  # what the last step has left to cover
            total = max(span - (last or step), 0)
            found.append((total // 2, total - total // 2))
        return tuple(found)


class Depthwise(Convolution):
    """One group for each channel."""

    def weight(self) -> ParameterSlice:
        """Output channel = channel × multiplier + m."""
        return layout.depthwise_kernel(self.keras.kernel)

    def groups(self) -> int:
        """One group per channel."""
        return int(self.keras.kernel.shape[-2])


class Transposed(Convolution):
    """Transposed convolutions, addressed as the convolution they are the gradient of."""

    name = "conv_transpose"

    def groups(self) -> int:
        """Keras has no groups here."""
        return 1


class Separable(Convolution):
    """Two layers in one: each channel by itself, then all of them at every position."""

    def find(self, name: str) -> Iterator[Layer]:
        """`depthwise`, without a bias, and `pointwise`."""
        bias = {} if self.keras.bias is None else {"bias": layout.plain(self.keras.bias)}
        depthwise = layout.depthwise_kernel(self.keras.depthwise_kernel)
        yield Layer(f"{name}/depthwise", self, {"weight": depthwise}, "depthwise")
        yield Layer(
            f"{name}/pointwise", self, {"weight": layout.kernel(self.keras.pointwise_kernel), **bias}, "pointwise"
        )

    def geometry(self, layer: Layer) -> Geometry:
        """The pointwise part walks step by step."""
        if layer.part == "depthwise":
            return super().geometry(layer)
        axes = len(self.keras.kernel_size)
        return Geometry((1,) * axes, ((0, 0),) * axes, (1,) * axes)

    def groups(self) -> int:
        """One group per channel."""
        return int(self.keras.depthwise_kernel.shape[-2])

    def entering(self, layer: Layer, values: Array) -> Array:
        """A padding layer before it concerns the depthwise part alone."""
        return super().entering(layer, values) if layer.part == "depthwise" else self._channels_first(values)

    def replacements(self, watcher: Watcher) -> Replacements:
        """Split Keras' single call into one call per part."""
        own, (first, second) = self.keras, self.layers

        def depthwise(inputs: Any) -> Any:
            return ops.depthwise_conv(
                inputs, own.depthwise_kernel, own.strides, own.padding, own.data_format, own.dilation_rate
            )

        def pointwise(inputs: Any) -> Any:
            outputs = ops.conv(inputs, own.pointwise_kernel, 1, "valid", own.data_format)
            if own.bias is None:
                return outputs
            rest = (1,) * len(own.kernel_size)
            return outputs + ops.reshape(own.bias, (1, *rest, -1) if self._last else (1, -1, *rest))

        def call(inputs: Any) -> Any:
            middle = watcher.use(first, {"weight": inputs}, lambda: depthwise(inputs))
            return own.activation(watcher.use(second, {"weight": middle}, lambda: pointwise(middle)))

        return {(own, "call"): call}
