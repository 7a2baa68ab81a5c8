"""OriginalTail: what the fast evaluator needs of a dense tail's original activations, in its own layout.

They come from the `TailCache` that all searches share. Of 18 MB there (FM MLP, 5,097 inputs, first layer) this keeps
0.4 MB: the touched weights' inputs and units, with the inputs on the last axis, and bounds of rounding errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from arachne.model.backend import ModelBackend
from arachne.model.values import Array, batches, take
from arachne.scoring.dense_layers import DenseLayer
from arachne.scoring.fitness import FitnessInputs
from arachne.scoring.functions import STEEPEST, apply
from arachne.scoring.tail_cache import TailCache

INPUTS_AT_ONCE = 1024
"""The number of inputs run at a time while a tail is prepared."""


@dataclass(frozen=True, eq=False)
class OriginalTail:
    """The original activations of a tail, with the inputs on the last axis.

    If the first layer is a convolution, its arrays also have axes for positions, and features take the place of units.

    Attributes:
        entering: The inputs of the first layer's touched weights, `(sources, n)`.
        leaving: The outputs of its touched units, `(units, n)`; of all units if it is the only layer.
        activated: These outputs after the layer's functions, `(units, n)`.
        sources: The inputs of the second layer's touched weights, `(sources, n)`; None without a second layer.
        second: The outputs of the second layer, `(out, n)`; None without one.
        rounding: A bound of the rounding errors of the original scores, divided by eps, `(n,)`.
        roundings: For each layer, the largest such error of each unit, `(out,)`; in the first of touched units only.
        peaks: For each layer, the largest magnitude of each touched weight's input, `(sources,)`.
    """

    entering: Array
    leaving: Array
    activated: Array
    sources: Array | None
    second: Array | None
    rounding: Array
    roundings: tuple[Array, ...]
    peaks: tuple[Array, ...]

    @classmethod
    def of(
        cls, backend: ModelBackend, fitness_inputs: FitnessInputs, layers: Sequence[DenseLayer], memory: int
    ) -> OriginalTail | None:
        """Compute a tail in batches; None if the first layer takes no vectors, or it needs more bytes than `memory`."""
        parts: list[list[Array]] = []
        roundings: list[Array] = []
        peaks: list[Array] = []
        for rows in batches(len(fitness_inputs), INPUTS_AT_ONCE):
            entering, leaving = _activations(backend, fitness_inputs, layers[0].info.name, rows)
            if entering.ndim != 2 or leaving.ndim != 2:
                return None
            kept, errors, tops = _measure_batch(layers, entering.T.astype(np.float32), leaving.T.astype(np.float32))
            parts.append([*kept, errors[-1].max(axis=0, keepdims=True)])
            # Twice: a route keeps the inputs in their original order and in its own order.
            if 2 * sum(array.nbytes for array in parts[0]) / len(entering) * len(fitness_inputs) > memory:
                return None
            worst = [error.max(axis=1) for error in errors]
            roundings = [np.maximum(*pair) for pair in zip(roundings, worst, strict=True)] if roundings else worst
            peaks = [np.maximum(*pair) for pair in zip(peaks, tops, strict=True)] if peaks else tops
        whole = [np.concatenate(arrays, axis=1) for arrays in zip(*parts, strict=True)]
        sources, second = (whole[2], whole[3]) if len(layers) > 1 else (None, None)
        activated = apply(layers[0].functions, whole[1])
        return cls(whole[0], whole[1], activated, sources, second, whole[-1][0], tuple(roundings), tuple(peaks))

    def take(self, order: Array) -> OriginalTail:
        """Reorder the inputs."""

        def reorder(values: Array) -> Array:
            return np.take(
                values, order, axis=-1
            )  # unlike indexing, this keeps the inputs next to each other in memory

        return OriginalTail(
            entering=reorder(self.entering),
            leaving=reorder(self.leaving),
            activated=reorder(self.activated),
            sources=None if self.sources is None else reorder(self.sources),
            second=None if self.second is None else reorder(self.second),
            rounding=self.rounding[order],
            roundings=self.roundings,
            peaks=self.peaks,
        )


def _activations(backend: ModelBackend, fitness_inputs: FitnessInputs, layer: str, rows: slice) -> tuple[Array, Array]:
    """Return what enters and leaves a layer for some inputs: from the pass that was made for all searches, or anew."""
    cache = fitness_inputs.activations
    if isinstance(cache, TailCache) and layer in cache:
        own = cache.take(np.arange(rows.start, rows.stop))
        return np.asarray(own.entering(layer)), np.asarray(own.leaving(layer))
    (use,) = backend.activations(take(fitness_inputs.inputs, rows), layer)
    return use.entering["weight"], use.leaving


def _measure_batch(
    layers: Sequence[DenseLayer], entering: Array, leaving: Array
) -> tuple[list[Array], list[Array], list[Array]]:
    """Compute `OriginalTail`'s arrays of the first two layers for some inputs, and all rounding errors and peaks."""
    first = layers[0]
    units = np.arange(len(leaving)) if len(layers) == 1 else first.touched.units
    sources = first.touched.entering(entering)
    error = np.abs(first.weight[units]) @ np.abs(entering) + np.abs(first.bias[units])
    activated = apply(first.functions, leaving)
    kept, errors, peaks = error_of_following_layers(layers[1:], activated, units, error)
    return [sources, leaving[units], *kept], [error, *errors], [np.abs(sources).max(axis=1), *peaks]


def error_of_following_layers(
    layers: Sequence[DenseLayer], a: Array, features: Array, error: Array
) -> tuple[list[Array], list[Array], list[Array]]:
    """Compute the second layer's arrays, and the rounding errors and peaks of all layers behind the first.

    A unit's rounding error is proportional to the sum of magnitudes at it, plus the errors that its weights pass on:

        error' = STEEPEST * |W| error + |W| |a| + |b|

    Args:
        layers: The layers behind the first.
        a: Their inputs, `(in, n)`.
        features: The rows of `a` that the first layer's touched units change.
        error: The rounding errors of these, divided by eps, `(features, n)`.
    """
    kept: list[Array] = []
    errors: list[Array] = []
    peaks: list[Array] = []
    for number, layer in enumerate(layers):
        leaving = layer.weight @ a + layer.bias
        sources = layer.touched.entering(a)
        reach = np.abs(layer.weight[:, features] if number == 0 else layer.weight)
        error = STEEPEST * reach @ error + np.abs(layer.weight) @ np.abs(a) + np.abs(layer.bias)
        if number == 0:
            kept = [sources, leaving]
        errors.append(error)
        peaks.append(np.abs(sources).max(axis=1))
        a = apply(layer.functions, leaving)
    return kept, errors, peaks
