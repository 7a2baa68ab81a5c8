"""The linear map z = A(W) o of each kind of layer: its outputs, and its gradient with respect to a parameter.

Everything here works on averages over inputs, or on averages of magnitudes, so a `Flow` has no axis of inputs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy import sparse

from arachne.model.values import Activation, Array, Geometry, LayerInfo

MAX_PATCH_NUMBERS = 1 << 18
"""The largest number of elements of an unfolded piece of a convolution's input."""

WEIGHTS_AT_ONCE = 1 << 16
"""The number of weights processed together, so that intermediate results stay in the processor's cache."""

Entering = Any
"""The mean input: an array, or for an embedding a sparse matrix `(positions, rows)`."""


@dataclass(frozen=True)
class Flow:
    """The mean inputs of one use of a layer, and the mean gradient at its outputs.

    Attributes:
        entering: |ō| for each weight parameter, float64, without the axis of inputs.
        gradient: ḡ, float64, of the shape of one output.
        transposed: Whether this use multiplies with the transpose of the weight.
    """

    entering: Mapping[str, Entering]
    gradient: Array
    transposed: bool = False


class Linear(ABC):
    """The linear map of one kind of layer."""

    channels = -1
    """The axis of one output on which its biases lie."""

    def __init__(self, info: LayerInfo) -> None:
        self.info = info

    def channels_last(self, use: Activation, weights: Mapping[str, Array]) -> bool:
        """Tell whether a use has its channels last, for layers that allow both."""
        return True

    def uses(self, use: Activation, channels_last: bool) -> Sequence[Activation]:
        """Return a use in the form of this map; several uses if the model folds an axis into its batch."""
        return (use,)

    def outputs(self, values: Array, channels_last: bool) -> Sequence[Array]:
        """Return values of the shape of the outputs `(n, ...)` in the form and number of `uses`."""
        return (values,)

    def total(self, parameter: str, use: Activation) -> Entering:
        """Sum a parameter's inputs over the batch, float64."""
        return use.entering[parameter].sum(axis=0, dtype=np.float64)

    @abstractmethod
    def arriving(self, weights: Mapping[str, Array], flow: Flow) -> Array:
        """Return D = A(|W|) |ō|, summed over the layer's weight parameters, of the shape of one output."""

    @abstractmethod
    def gradient(self, parameter: str, flow: Flow, seed: Array, rows: slice) -> Array:
        """Return the gradient of <seed, A(W) |ō|> with respect to some rows of a parameter."""

    def bias_gradient(self, seed: Array) -> Array:
        """Return the gradient with respect to a bias, a weight on a constant 1 at every position."""
        by_channel = np.moveaxis(seed, self.channels, -1).reshape(-1, seed.shape[self.channels])
        return np.asarray(by_channel.sum(axis=0))

    def spread_bias(self, bias: Array, shape: tuple[int, ...]) -> Array:
        """Reshape a bias so that it can be added to an output of this shape."""
        axes = [1] * len(shape)
        axes[self.channels] = len(bias)
        return bias.reshape(axes)

    def blocks(self, values: Array) -> list[slice]:
        """Return the rows of a parameter that are processed together, to bound memory beside the weights."""
        size = max(1, WEIGHTS_AT_ONCE // max(1, values[0].size))
        return [slice(start, start + size) for start in range(0, len(values), size)]


class Dense(Linear):
    """z = W o, at every step where o has steps; also the maps inside recurrent layers and attention.

    A use that multiplies with the transpose (a decoder tied to its encoder) is z = Wᵀ o.
    """

    def arriving(self, weights: Mapping[str, Array], flow: Flow) -> Array:
        arriving = np.zeros_like(flow.gradient)
        for name, values in weights.items():
            for rows in self.blocks(values):  # a product in float64 copies its weights
                if flow.transposed:
                    arriving += flow.entering[name][..., rows] @ values[rows]
                else:
                    arriving[..., rows] += flow.entering[name] @ values[rows].T
        return arriving

    def gradient(self, parameter: str, flow: Flow, seed: Array, rows: slice) -> Array:
        entering = flow.entering[parameter].reshape(-1, flow.entering[parameter].shape[-1])
        seed = seed.reshape(-1, seed.shape[-1])
        gradient: Array = entering[:, rows].T @ seed if flow.transposed else seed[:, rows].T @ entering
        return gradient


class Embedding(Dense):
    """Rows looked up by number: z = Wᵀ o at each position, where o is 1 for the row and 0 for all others.

    On average o is how often each row is looked up at each position. A use that is not a look-up (a last layer tied to
    the table) is treated as a dense layer.
    """

    def blocks(self, values: Array) -> list[slice]:
        """Return larger blocks, because selecting columns of a sparse matrix is slow."""
        size = max(1, MAX_PATCH_NUMBERS // max(1, values[0].size))
        return [slice(start, start + size) for start in range(0, len(values), size)]

    def total(self, parameter: str, use: Activation) -> Entering:
        numbers = use.entering[parameter]
        if use.leaving.ndim == numbers.ndim:
            return super().total(parameter, use)
        numbers = numbers.reshape(len(numbers), -1).astype(np.int64)
        positions = np.broadcast_to(np.arange(numbers.shape[1]), numbers.shape)
        shape = (numbers.shape[1], self.info.parameters[parameter].shape[0])
        ones = np.ones(numbers.size)
        return sparse.coo_matrix((ones, (positions.ravel(), numbers.ravel())), shape).tocsc()

    def arriving(self, weights: Mapping[str, Array], flow: Flow) -> Array:
        looked_up = flow.entering["weight"]
        if not sparse.issparse(looked_up):
            return super().arriving(weights, flow)
        arriving = np.zeros((looked_up.shape[0], flow.gradient.shape[-1]))
        for rows in self.blocks(weights["weight"]):
            arriving += looked_up[:, rows] @ weights["weight"][rows].astype(np.float64)
        return arriving.reshape(flow.gradient.shape)

    def gradient(self, parameter: str, flow: Flow, seed: Array, rows: slice) -> Array:
        looked_up = flow.entering[parameter]
        if not sparse.issparse(looked_up):
            return super().gradient(parameter, flow, seed, rows)
        gradient: Array = looked_up[:, rows].T @ seed.reshape(-1, seed.shape[-1])
        return gradient


class Norm(Linear):
    """z = s x̂ for each channel, where x̂ is the normalised input; channels first here, whatever the model has."""

    channels = 0

    def channels_last(self, use: Activation, weights: Mapping[str, Array]) -> bool:
        """Infer the channel axis from shapes, or by recomputing the output if both fit."""
        shape = next(iter(self.info.parameters.values())).shape
        first, last = use.leaving.shape[1 : 1 + len(shape)] == shape, use.leaving.shape[-len(shape) :] == shape
        if not (first and last) or use.leaving.ndim == 1 + len(shape):
            return last
        scale, bias = weights.get("scale", np.ones(shape)), weights.get("bias", np.zeros(shape))
        entering = use.entering.get("scale", use.leaving)
        return bool(np.allclose(entering * scale + bias, use.leaving, rtol=1e-2, atol=1e-3))

    def uses(self, use: Activation, channels_last: bool) -> Sequence[Activation]:
        entering = {name: self._channels_first(values, channels_last) for name, values in use.entering.items()}
        return (Activation(entering, self._channels_first(use.leaving, channels_last)),)

    def outputs(self, values: Array, channels_last: bool) -> Sequence[Array]:
        return (self._channels_first(values, channels_last),)

    def arriving(self, weights: Mapping[str, Array], flow: Flow) -> Array:
        arriving = np.zeros_like(flow.gradient)
        for name, values in weights.items():
            arriving += values.reshape(-1, 1) * flow.entering[name]
        return arriving

    def gradient(self, parameter: str, flow: Flow, seed: Array, rows: slice) -> Array:
        whole = (seed * flow.entering[parameter]).sum(axis=1).reshape(self.info.parameters[parameter].shape)
        return np.asarray(whole[rows])

    def bias_gradient(self, seed: Array) -> Array:
        return np.asarray(seed.sum(axis=1).reshape(next(iter(self.info.parameters.values())).shape))

    def spread_bias(self, bias: Array, shape: tuple[int, ...]) -> Array:
        return bias.reshape(-1, 1)

    def _channels_first(self, values: Array, channels_last: bool) -> Array:
        """Reshape to `(n, channels, positions)`."""
        n, size = len(values), next(iter(self.info.parameters.values())).size
        if channels_last:
            return np.moveaxis(values.reshape(n, -1, size), 1, 2)
        return values.reshape(n, size, -1)


class Convolution(Linear):
    """z = W * o with any stride, padding, dilation and groups, in one to three dimensions."""

    channels = 0

    def uses(self, use: Activation, channels_last: bool) -> Sequence[Activation]:
        pieces = self._steps(use.entering["weight"])
        leaving = self._steps(use.leaving)
        return [Activation({"weight": one}, other) for one, other in zip(pieces, leaving, strict=True)]

    def outputs(self, values: Array, channels_last: bool) -> Sequence[Array]:
        return self._steps(values)

    def arriving(self, weights: Mapping[str, Array], flow: Flow) -> Array:
        kernel = weights["weight"]
        matrices = kernel.reshape(self._geometry.groups, -1, kernel[0].size).astype(np.float64)
        arriving = np.empty_like(flow.gradient)
        for rows, patches in self._patches(flow.entering["weight"]):
            arriving[:, rows] = (matrices @ patches).reshape(arriving[:, rows].shape)
        return arriving

    def gradient(self, parameter: str, flow: Flow, seed: Array, rows: slice) -> Array:
        return self._weight_gradient(parameter, flow.entering[parameter], seed)[rows]

    def blocks(self, values: Array) -> list[slice]:
        return [slice(0, len(values))]

    @property
    def _geometry(self) -> Geometry:
        if self.info.geometry is None:
            raise ValueError(f"layer '{self.info.name}' is a convolution without geometry")
        return self.info.geometry

    def _steps(self, values: Array) -> list[Array]:
        """Split values into the frames that the model folded into its batch, `(n, frames, channels, ...)`."""
        axes = 2 + len(self.info.parameters["weight"].shape[2:])
        if values.ndim <= axes:
            return [values]
        folded = values.reshape(len(values), -1, *values.shape[values.ndim - axes + 1 :])
        return [folded[:, step] for step in range(folded.shape[1])]

    def _weight_gradient(self, parameter: str, walked: Array, seed: Array) -> Array:
        """Return the gradient of a convolution over `walked` whose outputs are seeded with `seed`."""
        groups = self._geometry.groups
        shape = self.info.parameters[parameter].shape
        total = np.zeros((groups, shape[0] // groups, int(np.prod(shape[1:]))))
        for piece, patches in self._patches(walked):
            total += seed[:, piece].reshape(groups, shape[0] // groups, -1) @ patches.swapaxes(1, 2)
        return total.reshape(shape)

    def columns(self, entering: Array) -> Array:
        """Return one input `(channels, *positions)` as the vectors that the kernel meets, `(in, positions)`.

        `in` counts the elements of the kernel of one output.
        """
        return np.concatenate([patches[0] for _, patches in self._patches(entering)], axis=1)

    def _patches(self, entering: Array) -> Iterator[tuple[slice, Array]]:
        """Unfold the input into patches of the kernel's size, piece by piece along the first spatial axis.

        Yields:
            The rows of that axis, and the patches `(groups, channels / groups * kernel, positions)`.
        """
        geometry, kernel = self._geometry, self.info.parameters["weight"].shape[2:]
        padded = np.pad(entering, [(0, 0), *geometry.padding])
        windows = self._windows(padded)
        n, step = windows.shape[1], max(1, MAX_PATCH_NUMBERS // max(1, windows[:, 0].size))
        axes = (0, *range(1 + len(kernel), 1 + 2 * len(kernel)), *range(1, 1 + len(kernel)))
        for start in range(0, n, step):
            piece = windows[:, start : start + step].transpose(axes)
            yield (
                slice(start, start + step),
                piece.reshape(geometry.groups, -1, int(np.prod(piece.shape[-len(kernel) :]))),
            )

    def _windows(self, padded: Array, *, writeable: bool = False) -> Array:
        """Return a view `(channels, *positions, *kernel)` of a padded array: the kernel's window at each position."""
        geometry, kernel = self._geometry, self.info.parameters["weight"].shape[2:]
        spans = tuple((k - 1) * d + 1 for k, d in zip(kernel, geometry.dilation, strict=True))
        windows = sliding_window_view(padded, spans, axis=tuple(range(1, padded.ndim)), writeable=writeable)
        return windows[(slice(None), *(slice(None, None, s) for s in (*geometry.stride, *geometry.dilation)))]


class TransposedConvolution(Convolution):
    """A transposed convolution, the gradient of a convolution from outputs to inputs: <z, s> = <o, W * s>."""

    def arriving(self, weights: Mapping[str, Array], flow: Flow) -> Array:
        kernel, entering, groups = weights["weight"], flow.entering["weight"], self._geometry.groups
        size, pads = kernel.shape[2:], self._geometry.padding
        padded = np.zeros(
            (flow.gradient.shape[0], *(n + sum(pad) for n, pad in zip(flow.gradient.shape[1:], pads, strict=True)))
        )
        # (channels, *positions, *kernel); the windows overlap, so elements of the kernel are added one at a time.
        windows = self._windows(padded, writeable=True)
        matrices = kernel.reshape(groups, len(kernel) // groups, -1, *size).astype(np.float64)
        inputs = entering.reshape(groups, len(kernel) // groups, -1)
        for element in np.ndindex(*size):
            part = np.einsum("gio,gip->gop", matrices[(..., *element)], inputs)
            windows[(..., *element)] += part.reshape(padded.shape[0], *entering.shape[1:])
        inside = tuple(slice(before, before + n) for (before, _), n in zip(pads, flow.gradient.shape[1:], strict=True))
        return padded[(slice(None), *inside)]

    def gradient(self, parameter: str, flow: Flow, seed: Array, rows: slice) -> Array:
        return self._weight_gradient(parameter, seed, flow.entering[parameter])[rows]


LINEAR: dict[str, type[Linear]] = {
    "dense": Dense,
    "conv": Convolution,
    "conv_transpose": TransposedConvolution,
    "recurrent": Dense,
    "embedding": Embedding,
    "norm": Norm,
}
"""The linear map of each kind of layer. Localisers that need one leave other kinds out."""
