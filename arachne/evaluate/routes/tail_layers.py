"""The dense layers at the end of a model, which of their weights are touched, and what the original computes there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter

import numpy as np

from arachne.backend import ModelBackend
from arachne.evaluate.fitness import FitnessInputs
from arachne.evaluate.routes.functions import STEEPEST, Function, apply, chain
from arachne.suspects import Suspects
from arachne.values import Array, LayerInfo, batches, take

BIAS = -1
"""The number of the input that the bias is multiplied with, which is always 1."""

ROWS = 1024
"""How many inputs are run at a time while a tail is prepared."""


CHANGED_NUMBERS = 1 << 20
"""How many numbers the ΔW of a block of candidates may have together, so that they stay in the processor's cache."""


@dataclass(frozen=True, eq=False)
class Touched:
    """Which weights of one layer candidates change.

    Attributes:
        units: The outputs (or channels) of the layer they belong to, ascending.
        sources: The numbers of the inputs they are multiplied with, ascending; `BIAS` for the bias.
        numbers: Which elements of the candidate vector they are.
        rows: The place of each one's output in `units`.
        columns: The place of each one's input in `sources`.
        original: Their original values.
    """

    units: Array
    sources: Array
    numbers: Array
    rows: Array
    columns: Array
    original: Array

    @classmethod
    def of(cls, suspects: Suspects, layer: str, source: Callable[[tuple[int, ...]], int] = itemgetter(1)) -> Touched:
        """The suspects in a layer; there may be none.

        Args:
            suspects: What candidates change.
            layer: The layer.
            source: Gives the number of the input that a weight with this index is multiplied with.
        """
        numbers = [number for number, address in enumerate(suspects.addresses) if address.layer == layer]
        addresses = [suspects.addresses[number] for number in numbers]
        units, rows = np.unique(np.array([a.index[0] for a in addresses], np.int64), return_inverse=True)
        inputs = [BIAS if address.parameter == "bias" else source(address.index) for address in addresses]
        sources, columns = np.unique(np.array(inputs, np.int64), return_inverse=True)
        return cls(units, sources, np.array(numbers, np.int64), rows, columns, suspects.values[numbers])

    def __len__(self) -> int:
        return len(self.numbers)

    def change(self, trials: Array) -> Array:
        """ΔW of each candidate, float32 `(candidates, units, sources)`."""
        change = np.zeros((len(trials), len(self.units), len(self.sources)), np.float32)
        change[:, self.rows, self.columns] = trials[:, self.numbers] - self.original
        return change

    def entering(self, activations: Array) -> Array:
        """The inputs touched weights are multiplied with, `(sources, ...)`, out of all of them, `(in, ...)`."""
        chosen: Array = activations[self.sources]
        chosen[self.sources == BIAS] = 1
        return chosen


def block_size(most: int, touched: Iterable[Touched]) -> int:
    """How many candidates are judged together: `most`, or fewer where their ΔW would be too large."""
    size = sum(len(layer.units) * len(layer.sources) for layer in touched)
    return max(1, min(most, CHANGED_NUMBERS // max(1, size)))


@dataclass(frozen=True, eq=False)
class DenseLayer:
    """One dense layer of a tail.

    Attributes:
        info: The layer.
        weight: float32 `(out, in)`.
        bias: float32 `(out, 1)`.
        functions: The functions that follow it.
        touched: The weights of it that candidates change.
    """

    info: LayerInfo
    weight: Array
    bias: Array
    functions: tuple[Function, ...]
    touched: Touched


def find_tail(backend: ModelBackend, suspects: Suspects) -> list[DenseLayer] | None:
    """The layers from the first touched one to the scores, if all are dense; None where they are not."""
    return dense_layers(backend, suspects, first_touched(backend, suspects))


def first_touched(backend: ModelBackend, suspects: Suspects) -> int:
    """The number of the first touched layer, in order of execution."""
    touched = {address.layer for address in suspects.addresses}
    return min(number for number, info in enumerate(backend.layers) if info.name in touched)


def dense_layers(backend: ModelBackend, suspects: Suspects, first: int) -> list[DenseLayer] | None:
    """The layers from number `first` to the scores, if all are dense; None where they are not."""
    layers: list[DenseLayer] = []
    for info in backend.layers[first:]:
        functions = chain(info.followed_by)
        if (
            info.kind != "dense"
            or info.uses != 1
            or functions is None
            or not set(info.parameters) <= {"weight", "bias"}
        ):
            return None
        weights = backend.get_weights(info.name)
        weight = weights["weight"].astype(np.float32)
        bias = weights["bias"].astype(np.float32) if "bias" in weights else np.zeros(len(weight), np.float32)
        layers.append(DenseLayer(info, weight, bias[:, None], functions, Touched.of(suspects, info.name)))
    fits = all(behind.weight.shape[1] == len(layer.weight) for layer, behind in pairwise(layers))
    return layers if layers and fits and not layers[-1].functions else None


@dataclass(frozen=True, eq=False)
class OriginalTail:
    """What the original model computes in a tail, with the inputs on the last axis.

    Where the first layer is a convolution, its arrays also have axes for positions, and features stand for units.

    Attributes:
        entering: What the first layer's touched weights are multiplied with, `(sources, n)`.
        leaving: What leaves its touched units, `(units, n)`; all units where it is the only layer.
        activated: The same behind the layer's functions, `(units, n)`.
        sources: What the second layer's touched weights are multiplied with, `(sources, n)`; None without one.
        second: What leaves the second layer, `(out, n)`; None without one.
        rounding: How large the rounding errors of the original scores can get, divided by eps, `(n,)`.
        roundings: For each layer, the largest such error of each unit, `(out,)`; in the first of touched units only.
        peaks: For each layer, the largest magnitude each touched weight is multiplied with, `(sources,)`.
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
        """Computed in batches; None where the first layer takes no vectors, or this needs more bytes than `memory`."""
        parts: list[list[Array]] = []
        roundings: list[Array] = []
        peaks: list[Array] = []
        for rows in batches(len(fitness_inputs), ROWS):
            (use,) = backend.activations(take(fitness_inputs.inputs, rows), layers[0].info.name)
            entering = use.entering["weight"]
            if entering.ndim != 2 or use.leaving.ndim != 2:
                return None
            kept, errors, tops = _look(layers, entering.T.astype(np.float32), use.leaving.T.astype(np.float32))
            parts.append([*kept, errors[-1].max(axis=0, keepdims=True)])
            # Twice: a route keeps the inputs in their own order and in the order in which they are looked at.
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
        """The same with the inputs in another order."""

        def ordered(values: Array) -> Array:
            return np.take(
                values, order, axis=-1
            )  # unlike indexing, this keeps the inputs next to each other in memory

        return OriginalTail(
            entering=ordered(self.entering),
            leaving=ordered(self.leaving),
            activated=ordered(self.activated),
            sources=None if self.sources is None else ordered(self.sources),
            second=None if self.second is None else ordered(self.second),
            rounding=self.rounding[order],
            roundings=self.roundings,
            peaks=self.peaks,
        )


def _look(
    layers: Sequence[DenseLayer], entering: Array, leaving: Array
) -> tuple[list[Array], list[Array], list[Array]]:
    """What `OriginalTail` keeps of the first two layers for some inputs; rounding errors and peaks of all layers."""
    first = layers[0]
    units = np.arange(len(leaving)) if len(layers) == 1 else first.touched.units
    sources = first.touched.entering(entering)
    error = np.abs(first.weight[units]) @ np.abs(entering) + np.abs(first.bias[units])
    activated = apply(first.functions, leaving)
    kept, errors, peaks = look_behind(layers[1:], activated, units, error)
    return [sources, leaving[units], *kept], [error, *errors], [np.abs(sources).max(axis=1), *peaks]


def look_behind(
    layers: Sequence[DenseLayer], a: Array, features: Array, error: Array
) -> tuple[list[Array], list[Array], list[Array]]:
    """What `OriginalTail` keeps of the second layer for some inputs; rounding errors and peaks of all behind the first.

    A unit's rounding error is proportional to the sum of magnitudes at it, plus what its weights pass on:

        error' = STEEPEST * |W| error + |W| |a| + |b|

    Args:
        layers: The layers behind the first.
        a: What enters them, `(in, n)`.
        features: The rows of `a` that the first layer's touched units move.
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
