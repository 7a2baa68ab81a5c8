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

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from arachne.backend import ModelBackend
from arachne.localise.averages import Averages, magnitudes
from arachne.localise.linear_maps import LINEAR, WEIGHTS, Flow, Linear
from arachne.memory import give_back
from arachne.values import Array, Inputs, LayerInfo, count

__all__ = ["LINEAR", "Flow", "ScoredClasses", "impact_ratio", "measure_flows"]


@dataclass(frozen=True)
class ScoredClasses:
    """Whose scores' gradients are summed, and how many backward passes that takes.

    The sum over many classes is estimated: beside a few whose gradient is taken for every input, the others take turns.
    Each input has `turns` of them, the next input the next ones, and each counts for as many as there are per turn. On
    average over inputs that is the sum over all of them.

    Attributes:
        n_classes: How many classes the model has.
        always: Classes of which every input's gradient is taken.
        others: The classes that take turns.
        turns: How many of the others each input has; all of them if there are no more.
    """

    n_classes: int
    always: tuple[int, ...]
    others: tuple[int, ...] = ()
    turns: int = 0

    @property
    def passes(self) -> int:
        """How many backward passes there are."""
        return len(self.always) + min(self.turns, len(self.others))

    def seeds(self, rows: slice) -> Iterator[Array]:
        """The seeds of some inputs, float32 `(rows, classes)`."""
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
    """Average what flows through each use of each layer, as the backend shows it.

    Args:
        backend: The model.
        inputs: The inputs to average over.
        layers: The layers.
        classes: Whose scores' gradients are summed.
    """
    averages = Averages(backend, layers, magnitudes=True, dtype=np.float32).counting(1 / max(1, count(inputs)))
    if count(inputs):
        backend.observe(inputs, [info.name for info in layers], averages, classes.seeds)
        give_back()
    return averages


def impact_ratio(info: LayerInfo, weights: Mapping[str, Array], negative: list[Flow], positive: list[Flow]) -> None:
    """Turn a layer's weights into their forward impact, negative / (1 + positive), in the same memory.

    Args:
        info: The layer.
        weights: A copy of its weight parameters, and of its biases where these are wanted; overwritten.
        negative: What flows through it for the negatives.
        positive: The same for the positives.
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
            _divided(values[rows], above, below)
    for values in biases.values():
        arrived = [sum(seeds.bias_gradient for seeds in side) for side in sides]
        values[...] = values * arrived[0] / (1.0 + values * arrived[1])


def _divided(values: Array, above: Array | float, below: Array | float) -> None:
    """Values * above / (1 + values * below) in float64, put where the values were, a few rows at a time."""
    above, below = (np.broadcast_to(one, values.shape) for one in (above, below))
    size = max(1, WEIGHTS // max(1, values[0].size))
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
        """As `Linear.gradient`, with this use's seed."""
        return self._linear.gradient(parameter, self._flow, self._seed, rows)


def _ratio(gradient: Array, arriving: Array) -> Array:
    ratio: Array = np.divide(gradient, arriving, out=np.zeros_like(arriving), where=arriving > 0)
    return ratio
