"""Forward impact: how much of a layer's output arrives through one weight, and how much that output matters.

One formula serves every linear layer z = A(W) o. With ō the mean activation entering, D = A(|W|) |ō| the total arriving
at each output, and ḡ the mean magnitude of the scores' gradient at z, summed over classes:

    impact = |W| * (gradient of A(W) |ō| with respect to W, seeded with ḡ / D),   0 where D = 0

For a dense layer this is the paper's |o_i w_ij| / Σ_l |o_l w_lj| · |∂O/∂z_j|. Convolutions sum it over positions,
layers used at several steps over steps. Magnitudes are used throughout: signed products cancel and the share explodes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from arachne.backend import ModelBackend
from arachne.values import Array, Geometry, Inputs, LayerInfo, batches, count, take

BATCH = 64
MAX_CLASSES = 50
POSITIONS = 1 << 18
"""How many numbers a block of weights, or an unfolded piece of a convolution's input, may have at once."""


@dataclass(frozen=True)
class Flow:
    """What flows through one use of a layer on average.

    Attributes:
        entering: |ō| for each weight parameter, float64, without the axis of inputs.
        gradient: ḡ, float64, of the shape of one output.
    """

    entering: Mapping[str, Array]
    gradient: Array


def measure_flows(
    backend: ModelBackend, inputs: Inputs, layers: Sequence[str], classes: Sequence[int], n_classes: int
) -> dict[str, list[Flow]]:
    """Average what flows through each use of each layer, a batch of inputs at a time.

    Args:
        backend: The model.
        inputs: The inputs to average over, at least one.
        layers: The layers.
        classes: Whose scores' gradients are summed.
        n_classes: Number of classes of the model.
    """
    sums: dict[str, list[tuple[dict[str, Array], Array]]] = {}
    for batch in batches(count(inputs), BATCH):
        rows = take(inputs, batch)
        trace = backend.trace(rows, layers)
        for layer in layers:
            uses = sums.setdefault(layer, [])
            for number, use in enumerate(trace.activations[layer]):
                if number == len(uses):
                    uses.append(({}, np.zeros(use.leaving.shape[1:])))
                for parameter, entering in use.entering.items():
                    total = entering.sum(axis=0, dtype=np.float64)
                    uses[number][0][parameter] = uses[number][0].get(parameter, 0.0) + total
        for label in classes:
            seed = np.zeros((count(rows), n_classes), np.float32)
            seed[:, label] = 1.0
            for layer, gradients in trace.output_gradients(seed).items():
                for number, gradient in enumerate(gradients):
                    sums[layer][number][1][...] += np.abs(gradient).sum(axis=0, dtype=np.float64)
    n = count(inputs)
    return {
        layer: [Flow({name: np.abs(total) / n for name, total in entering.items()}, g / n) for entering, g in uses]
        for layer, uses in sums.items()
    }


def impact_ratio(info: LayerInfo, weights: Mapping[str, Array], negative: list[Flow], positive: list[Flow]) -> None:
    """Turn a layer's weights into their forward impact, negative / (1 + positive), in the same memory.

    Args:
        info: The layer.
        weights: A copy of its weight parameters; overwritten.
        negative: What flows through it for the negatives.
        positive: The same for the positives.
    """
    linear = LINEAR[info.kind](info)
    for values in weights.values():
        np.abs(values, out=values)
    seeds_negative = [_seed(linear, weights, flow) for flow in negative]
    seeds_positive = [_seed(linear, weights, flow) for flow in positive]
    for parameter, values in weights.items():
        for rows in linear.blocks(values):
            above = sum(linear.gradient(parameter, f, s, rows) for f, s in zip(negative, seeds_negative, strict=True))
            below = sum(linear.gradient(parameter, f, s, rows) for f, s in zip(positive, seeds_positive, strict=True))
            block = values[rows].astype(np.float64)
            values[rows] = block * above / (1.0 + block * below)


def _seed(linear: Linear, weights: Mapping[str, Array], flow: Flow) -> Array:
    arriving = linear.arriving(weights, flow)
    return np.divide(flow.gradient, arriving, out=np.zeros_like(arriving), where=arriving > 0)


class Linear(ABC):
    """The linear map of one kind of layer: what arrives, and its gradient with respect to a parameter."""

    def __init__(self, info: LayerInfo) -> None:
        self.info = info

    @abstractmethod
    def arriving(self, weights: Mapping[str, Array], flow: Flow) -> Array:
        """D = A(|W|) |ō|, summed over the layer's weight parameters, of the shape of one output."""

    @abstractmethod
    def gradient(self, parameter: str, flow: Flow, seed: Array, rows: slice) -> Array:
        """The gradient of <seed, A(W) |ō|> with respect to some rows of a parameter."""

    def blocks(self, values: Array) -> list[slice]:
        """Rows of a parameter that are worked on together, to bound what is held beside the weights."""
        size = max(1, POSITIONS // max(1, values[0].size))
        return [slice(start, start + size) for start in range(0, len(values), size)]


class Dense(Linear):
    """z = W o, at every step where o has steps; also the maps inside recurrent layers and attention."""

    def arriving(self, weights: Mapping[str, Array], flow: Flow) -> Array:
        arriving = np.zeros_like(flow.gradient)
        for name, values in weights.items():
            for rows in self.blocks(values):  # a product in float64 copies its weights
                arriving[..., rows] += flow.entering[name] @ values[rows].T
        return arriving

    def gradient(self, parameter: str, flow: Flow, seed: Array, rows: slice) -> Array:
        entering = flow.entering[parameter]
        seed = seed.reshape(-1, seed.shape[-1])[:, rows]
        gradient: Array = seed.T @ entering.reshape(-1, entering.shape[-1])
        return gradient


class Convolution(Linear):
    """z = W * o with any stride, padding, dilation and groups, in one to three dimensions."""

    def arriving(self, weights: Mapping[str, Array], flow: Flow) -> Array:
        kernel = weights["weight"]
        matrices = kernel.reshape(self._geometry.groups, -1, kernel[0].size).astype(np.float64)
        arriving = np.empty_like(flow.gradient)
        for rows, patches in self._patches(flow.entering["weight"]):
            arriving[:, rows] = (matrices @ patches).reshape(arriving[:, rows].shape)
        return arriving

    def gradient(self, parameter: str, flow: Flow, seed: Array, rows: slice) -> Array:
        groups = self._geometry.groups
        shape = self.info.parameters[parameter].shape
        total = np.zeros((groups, shape[0] // groups, int(np.prod(shape[1:]))))
        for piece, patches in self._patches(flow.entering[parameter]):
            total += seed[:, piece].reshape(groups, shape[0] // groups, -1) @ patches.swapaxes(1, 2)
        return total.reshape(shape)[rows]

    def blocks(self, values: Array) -> list[slice]:
        return [slice(0, len(values))]

    @property
    def _geometry(self) -> Geometry:
        if self.info.geometry is None:
            raise ValueError(f"layer '{self.info.name}' is a convolution without geometry")
        return self.info.geometry

    def _patches(self, entering: Array) -> Iterator[tuple[slice, Array]]:
        """What the kernel sees, piece by piece along the first spatial axis.

        Yields:
            The rows of that axis, and the patches `(groups, channels / groups * kernel, positions)`.
        """
        geometry, kernel = self._geometry, self.info.parameters["weight"].shape[2:]
        padded = np.pad(entering, [(0, 0), *geometry.padding])
        spans = tuple((k - 1) * d + 1 for k, d in zip(kernel, geometry.dilation, strict=True))
        windows = sliding_window_view(padded, spans, axis=tuple(range(1, padded.ndim)))
        windows = windows[(slice(None), *(slice(None, None, s) for s in (*geometry.stride, *geometry.dilation)))]
        n, step = windows.shape[1], max(1, POSITIONS // max(1, windows[:, 0].size))
        axes = (0, *range(1 + len(kernel), 1 + 2 * len(kernel)), *range(1, 1 + len(kernel)))
        for start in range(0, n, step):
            piece = windows[:, start : start + step].transpose(axes)
            yield (
                slice(start, start + step),
                piece.reshape(geometry.groups, -1, int(np.prod(piece.shape[-len(kernel) :]))),
            )


LINEAR: dict[str, type[Linear]] = {"dense": Dense, "conv": Convolution, "recurrent": Dense}
"""The linear map of each kind of layer. A kind without one gets no forward impact."""
