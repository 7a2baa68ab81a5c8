"""The dense layers at the end of a model, and which of their weights candidates change."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter

import numpy as np

from arachne.model.backend import ModelBackend
from arachne.model.values import Array, LayerInfo
from arachne.scoring.functions import Function, chain
from arachne.weights.selection import Selection

BIAS = -1
"""The input number of the bias, whose input is always 1."""

CHANGED_NUMBERS = 1 << 20
"""The largest size of all ΔW of a block of candidates, so that they stay in the processor's cache."""


@dataclass(frozen=True, eq=False)
class ChangedWeights:
    """The weights of one layer that candidates change.

    Attributes:
        units: Their outputs (or channels), ascending.
        sources: The numbers of their inputs, ascending; `BIAS` for the bias.
        numbers: Their positions in the candidate vector.
        rows: The position of each weight's output in `units`.
        columns: The position of each weight's input in `sources`.
        original: Their original values.
    """

    units: Array
    sources: Array
    numbers: Array
    rows: Array
    columns: Array
    original: Array

    @classmethod
    def of(
        cls, suspects: Selection, layer: str, source: Callable[[tuple[Array, ...]], Array] = itemgetter(1)
    ) -> ChangedWeights:
        """Find the suspects in a layer; there may be none.

        Args:
            suspects: The weights that candidates change.
            layer: The layer.
            source: Returns the input numbers of weights, from their index by axis.
        """
        own = suspects.in_layer(layer)
        outputs, inputs = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for slice_ in suspects.slices:
            if slice_.layer == layer:
                outputs.append(slice_.index[0])
                inputs.append(np.full(len(slice_), BIAS) if slice_.parameter == "bias" else source(slice_.index))
        units, rows = np.unique(np.concatenate(outputs), return_inverse=True)
        sources, columns = np.unique(np.concatenate(inputs), return_inverse=True)
        return cls(units, sources, np.arange(own.start, own.stop), rows, columns, suspects.values[own])

    def __len__(self) -> int:
        return len(self.numbers)

    def change(self, trials: Array) -> Array:
        """Return ΔW of each candidate, float32 `(candidates, units, sources)`."""
        change = np.zeros((len(trials), len(self.units), len(self.sources)), np.float32)
        change[:, self.rows, self.columns] = trials[:, self.numbers] - self.original
        return change

    def entering(self, activations: Array) -> Array:
        """Select the inputs of the changed weights, `(sources, ...)`, from all inputs, `(in, ...)`."""
        chosen: Array = activations[self.sources]
        chosen[self.sources == BIAS] = 1
        return chosen


def block_size(most: int, touched: Iterable[ChangedWeights]) -> int:
    """Return the number of candidates in a block: `most`, or fewer if their ΔW would be too large."""
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
        touched: Its weights that candidates change.
    """

    info: LayerInfo
    weight: Array
    bias: Array
    functions: tuple[Function, ...]
    touched: ChangedWeights


def find_tail(backend: ModelBackend, suspects: Selection, *, rounded: bool = False) -> list[DenseLayer] | None:
    """Return the layers from the first touched one to the scores; None if one of them is not dense."""
    return dense_layers(backend, suspects, first_touched(backend, suspects), rounded=rounded)


def first_touched(backend: ModelBackend, suspects: Selection) -> int:
    """Return the number of the first touched layer, in order of execution."""
    touched = set(suspects.layers)
    return min(number for number, info in enumerate(backend.layers) if info.name in touched)


def dense_layers(
    backend: ModelBackend, suspects: Selection, first: int, *, rounded: bool = False
) -> list[DenseLayer] | None:
    """Return the layers from number `first` to the scores; None if one of them is not dense."""
    layers: list[DenseLayer] = []
    for info in backend.layers[first:]:
        functions = chain(info.followed_by, rounded=rounded)
        if (
            info.kind != "dense"
            or info.uses != 1
            or functions is None
            or not set(info.parameters) <= {"weight", "bias"}
        ):
            return None
        weights = backend.get_weights(info.name)
        weight = weights["weight"].astype(np.float32, copy=False)
        bias = (
            weights["bias"].astype(np.float32, copy=False) if "bias" in weights else np.zeros(len(weight), np.float32)
        )
        layers.append(DenseLayer(info, weight, bias[:, None], functions, ChangedWeights.of(suspects, info.name)))
    fits = all(behind.weight.shape[1] == len(layer.weight) for layer, behind in pairwise(layers))
    return layers if layers and fits and not layers[-1].functions else None
