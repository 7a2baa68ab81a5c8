"""Forward impact: how much of a layer's output arrives through one weight, and how much that output matters.

One formula serves every linear layer z = A(W) o. With ō the mean activation entering, D = A(|W|) |ō| the total arriving
at each output, and ḡ the mean magnitude of the scores' gradient at z, summed over classes:

    impact = |W| * (gradient of A(W) |ō| with respect to W, seeded with ḡ / D),   0 where D = 0

For a dense layer this is the paper's |o_i w_ij| / Σ_l |o_l w_lj| · |∂O/∂z_j|. Convolutions sum it over positions,
layers used at several steps over steps. Magnitudes are used throughout: signed products cancel and the share explodes.

A bias is a weight on a constant 1. Its share is that of |b| in D + |b|, with all biases of the layer in the sum; the
weights' own shares do not depend on whether biases are looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy import sparse

from arachne.backend import ModelBackend, Trace
from arachne.localise.linear_maps import LINEAR, Flow, Linear
from arachne.values import Array, Inputs, LayerInfo, count, take

MAX_CLASSES = 50

HELD = 256 << 20
"""Bytes of activations, and of the gradients that go with them, that are held at once."""

__all__ = ["HELD", "LINEAR", "MAX_CLASSES", "Flow", "impact_ratio", "measure_flows"]


def measure_flows(
    backend: ModelBackend, inputs: Inputs, layers: Sequence[str], classes: Sequence[int], n_classes: int
) -> dict[str, list[Flow]]:
    """Average what flows through each use of each layer, a batch of inputs at a time.

    The first input goes alone and shows how much memory each takes; the others go in batches that fit `HELD`.

    Args:
        backend: The model.
        inputs: The inputs to average over, at least one.
        layers: The layers.
        classes: Whose scores' gradients are summed.
        n_classes: Number of classes of the model.
    """
    sums = {layer: _Sums(backend, layer) for layer in layers}
    n, done, size = count(inputs), 0, 1
    while done < n:
        rows = take(inputs, slice(done, done + size))
        trace = backend.trace(rows, layers)
        for own in sums.values():
            own.add(trace)
        for label in classes:
            seed = np.zeros((count(rows), n_classes), np.float32)
            seed[:, label] = 1.0
            gradients = trace.output_gradients(seed)
            for layer, own in sums.items():
                own.add_gradients(trace, gradients[layer])
        done += size
        size = max(1, HELD // max(1, bytes_held(trace))) if size == 1 else size
    return {layer: own.flows(n) for layer, own in sums.items()}


class _Sums:
    """What flows through each use of one layer, summed over inputs."""

    def __init__(self, backend: ModelBackend, layer: str) -> None:
        self._layer = layer
        info = backend.info(layer)
        self._linear: Linear = LINEAR[info.kind](info)
        self._weights = backend.get_weights(layer) if info.kind == "norm" else {}
        self._entering: list[dict[str, Any]] = []
        self._gradients: list[Array] = []
        self._transposed: list[bool] = []

    def add(self, trace: Trace) -> None:
        """The activations of some inputs."""
        uses = [use for one in trace.activations[self._layer] for use in self._linear.uses(one, self._weights)]
        for number, use in enumerate(uses):
            if number == len(self._entering):
                self._entering.append({})
                self._gradients.append(np.zeros(use.leaving.shape[1:]))
                self._transposed.append(use.transposed)
            own = self._entering[number]
            for parameter in use.entering:
                own[parameter] = added(own.get(parameter), self._linear.total(parameter, use))

    def add_gradients(self, trace: Trace, gradients: Sequence[Array]) -> None:
        """The magnitudes of one class's gradients for the same inputs."""
        pairs = zip(trace.activations[self._layer], gradients, strict=True)
        parts = [part for use, values in pairs for part in self._linear.outputs(use, values, self._weights)]
        for number, gradient in enumerate(parts):
            total = np.abs(gradient).sum(axis=0, dtype=np.float64)
            self._gradients[number] = added(self._gradients[number], total)

    def flows(self, n: int) -> list[Flow]:
        """The averages over `n` inputs."""
        found = []
        for entering, gradient, turned in zip(self._entering, self._gradients, self._transposed, strict=True):
            averages = {name: abs(total) / n for name, total in entering.items()}
            found.append(Flow(averages, gradient / n, turned))
        return found


def added(total: Any, more: Any) -> Any:
    """The sum of two arrays or sparse matrices; None counts as nothing, and steps that only one has count as zeros."""
    if total is None or total.shape == more.shape:
        return more if total is None else total + more
    shape = tuple(map(max, total.shape, more.shape))
    if sparse.issparse(total):
        for one in (total, more):
            one.resize(shape)
        return total + more
    joined = np.zeros(shape)
    for one in (total, more):
        joined[tuple(map(slice, one.shape))] += one
    return joined


def bytes_held(trace: Trace) -> int:
    """What a trace of one input holds: activations as arrays and in the framework's graph, gradients of what leaves."""
    return sum(
        2 * sum(array.nbytes for array in use.entering.values()) + 3 * use.leaving.nbytes
        for uses in trace.activations.values()
        for use in uses
    )


def impact_ratio(info: LayerInfo, weights: Mapping[str, Array], negative: list[Flow], positive: list[Flow]) -> None:
    """Turn a layer's weights into their forward impact, negative / (1 + positive), in the same memory.

    Args:
        info: The layer.
        weights: A copy of its weight parameters, and of its biases where these are wanted; overwritten.
        negative: What flows through it for the negatives.
        positive: The same for the positives.
    """
    linear = LINEAR[info.kind](info)
    for values in weights.values():
        np.abs(values, out=values)
    biases = {name: values for name, values in weights.items() if name.startswith("bias")}
    matrices = {name: values for name, values in weights.items() if name not in biases}
    sides = [[_Seeds(linear, matrices, biases, flow) for flow in flows] for flows in (negative, positive)]
    for parameter, values in matrices.items():
        for rows in linear.blocks(values):
            above, below = (sum(seeds.gradient(parameter, rows) for seeds in side) for side in sides)
            block = values[rows].astype(np.float64)
            values[rows] = block * above / (1.0 + block * below)
    for values in biases.values():
        arrived = [sum(seeds.bias_gradient for seeds in side) for side in sides]
        values[...] = values * arrived[0] / (1.0 + values * arrived[1])


class _Seeds:
    """One use's ḡ / D, and for biases ḡ / (D + |b|)."""

    def __init__(self, linear: Linear, matrices: Mapping[str, Array], biases: Mapping[str, Array], flow: Flow) -> None:
        self._linear, self._flow = linear, flow
        arriving = linear.arriving(matrices, flow)
        self._seed = _ratio(flow.gradient, arriving)
        self.bias_gradient: Array | float = 0.0
        if biases and not flow.transposed and arriving.shape[linear.channels] == next(iter(biases.values())).size:
            for bias in biases.values():
                arriving = arriving + linear.spread_bias(bias, arriving.shape)
            self.bias_gradient = linear.bias_gradient(_ratio(flow.gradient, arriving))

    def gradient(self, parameter: str, rows: slice) -> Array:
        """As `Linear.gradient`, with this use's seed."""
        return self._linear.gradient(parameter, self._flow, self._seed, rows)


def _ratio(gradient: Array, arriving: Array) -> Array:
    ratio: Array = np.divide(gradient, arriving, out=np.zeros_like(arriving), where=arriving > 0)
    return ratio
