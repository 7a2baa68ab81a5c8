"""Forward impact: how much of a layer's output arrives through one weight, and how much that output matters.

One formula serves every linear layer z = A(W) o. With ō the mean activation entering, D = A(|W|) |ō| the total arriving
at each output, and ḡ the mean magnitude of the scores' gradient at z, summed over classes:

    impact = |W| * (gradient of A(W) |ō| with respect to W, seeded with ḡ / D),   0 where D = 0

For a dense layer this is the paper's |o_i w_ij| / Σ_l |o_l w_lj| · |∂O/∂z_j|. Convolutions sum it over positions,
layers used at several steps over steps. Magnitudes are used throughout: signed products cancel and the share explodes.

A bias is a weight on a constant 1. Its share is that of |b| in D + |b|, with all biases of the layer in the sum; the
weights' own shares do not depend on whether biases count.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from arachne.localise.averages import Averages, magnitudes
from arachne.localise.linear_maps import LINEAR, WEIGHTS_AT_ONCE, Flow, Linear
from arachne.model.backend import ModelBackend
from arachne.model.memory import release_freed_memory
from arachne.model.values import Array, Inputs, LayerInfo, count

__all__ = ["LINEAR", "Flow", "ScoredClasses", "impact_ratio", "measure_flows"]


@dataclass(frozen=True)
class ScoredClasses:
    """The classes whose scores' gradients are summed, and the schedule of backward passes.

    The sum over many classes is estimated: a few classes are differentiated for every input, and the others take turns.
    Each input differentiates `turns` of them, the next input the next ones, and each is multiplied by others / turns.
    On average over inputs that is the sum over all classes.

    Attributes:
        n_classes: The number of classes of the model.
        always: The classes that are differentiated for every input.
        others: The classes that take turns.
        turns: The number of other classes for each input; all of them if there are no more.
    """

    n_classes: int
    always: tuple[int, ...]
    others: tuple[int, ...] = ()
    turns: int = 0

    @property
    def passes(self) -> int:
        """The number of backward passes."""
        return len(self.always) + min(self.turns, len(self.others))

    def seeds(self, rows: slice) -> Iterator[Array]:
        """Yield the seeds of some inputs, float32 `(rows, classes)`."""
        numbers = np.arange(rows.start, rows.stop)
        for label in self.always:
            seed = np.zeros((len(numbers), self.n_classes), np.float32)
            seed[:, label] = 1.0
            yield seed
        turns, others = min(self.turns, len(self.others)), np.array(self.others, np.int64)
        for turn in range(turns):
            seed = np.zeros((len(numbers), self.n_classes), np.float32)
            seed[np.arange(len(numbers)), others[(numbers * turns + turn) % len(others)]] = len(others) / turns
            yield seed


def measure_flows(
    backend: ModelBackend, inputs: Inputs, layers: Sequence[LayerInfo], classes: ScoredClasses
) -> Averages:
    """Average the activations and gradients of each use of each layer.

    Args:
        backend: The model.
        inputs: The inputs to average over.
        layers: The layers.
        classes: The classes whose scores' gradients are summed.
    """
    averages = Averages(backend, layers, magnitudes=True, dtype=np.float32).weigh(1 / max(1, count(inputs)))
    if count(inputs):
        backend.observe(inputs, [info.name for info in layers], averages, classes.seeds)
        release_freed_memory()
    return averages


def impact_ratio(info: LayerInfo, weights: Mapping[str, Array], negative: list[Flow], positive: list[Flow]) -> None:
    """Turn a layer's weights into their forward impact, negative / (1 + positive), in the same memory.

    Args:
        info: The layer.
        weights: A copy of its weight parameters, and of its biases if they are wanted; overwritten.
        negative: Its averages over the negatives.
        positive: Its averages over the positives.
    """
    linear = LINEAR[info.kind](info)
    negative, positive = magnitudes(negative), magnitudes(positive)
    for values in weights.values():
        np.abs(values, out=values)
    biases = {name: values for name, values in weights.items() if name.startswith("bias")}
    matrices = {name: values for name, values in weights.items() if name not in biases}
    sides = [[_Seeds(linear, matrices, biases, flow) for flow in flows] for flows in (negative, positive)]
    for parameter, values in matrices.items():
        for rows in linear.blocks(values):
            above, below = (sum(seeds.gradient(parameter, rows) for seeds in side) for side in sides)
            _divide_in_place(values[rows], above, below)
    for values in biases.values():
        arrived = [sum(seeds.bias_gradient for seeds in side) for side in sides]
        values[...] = values * arrived[0] / (1.0 + values * arrived[1])


def _divide_in_place(values: Array, above: Array | float, below: Array | float) -> None:
    """Replace values by values * above / (1 + values * below), in float64, a few rows at a time."""
    above, below = (np.broadcast_to(one, values.shape) for one in (above, below))
    size = max(1, WEIGHTS_AT_ONCE // max(1, values[0].size))
    for start in range(0, len(values), size):
        rows = slice(start, start + size)
        block = values[rows].astype(np.float64)
        values[rows] = block * above[rows] / (1.0 + block * below[rows])


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
        """Return `Linear.gradient` for this use's seed."""
        return self._linear.gradient(parameter, self._flow, self._seed, rows)


def _ratio(gradient: Array, arriving: Array) -> Array:
    ratio: Array = np.divide(gradient, arriving, out=np.zeros_like(arriving), where=arriving > 0)
    return ratio
