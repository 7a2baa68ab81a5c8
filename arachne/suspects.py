"""The weights a search may change: what localisation hands to evaluation and search."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from operator import attrgetter

import numpy as np

from arachne.backend import ModelBackend
from arachne.values import Address, Array

WHOLE, BLOCK = 1 << 20, 1 << 16
"""Up to how many weights of a parameter are looked at together, and how many at a time of more."""


@dataclass(frozen=True, eq=False)
class Place:
    """The suspects that lie in one parameter.

    Attributes:
        layer: The layer.
        parameter: The parameter.
        numbers: Which elements of a candidate vector they are.
        index: Where they lie in the parameter: one array of numbers for each of its axes.
    """

    layer: str
    parameter: str
    numbers: slice
    index: tuple[Array, ...]


@dataclass(frozen=True)
class Suspects:
    """The weights a search may change, in the order of its candidate vectors.

    Attributes:
        addresses: Where they are, by order of execution, parameter and index.
        values: What they are now, float64 `(k,)`.
        dtypes: The dtype each is stored in.
        means: Mean of all weights of the parameter each lies in, `(k,)`.
        deviations: Their standard deviation, `(k,)`.
        lowest: The smallest of them, `(k,)`.
        highest: The largest of them, `(k,)`.
    """

    addresses: tuple[Address, ...]
    values: Array
    dtypes: tuple[str, ...]
    means: Array
    deviations: Array
    lowest: Array
    highest: Array

    @classmethod
    def of(cls, backend: ModelBackend, addresses: Iterable[Address]) -> Suspects:
        """The suspects at these addresses of a model, put into candidate order. Each tensor is looked at once."""
        found: dict[str, dict[str, dict[tuple[int, ...], Address]]] = {}
        for address in addresses:
            found.setdefault(address.layer, {}).setdefault(address.parameter, {})[address.index] = address
        number = {info.name: number for number, info in enumerate(backend.layers)}
        ordered: list[Address] = []
        dtypes: list[str] = []
        columns = [np.zeros((5, 0))]
        for layer in sorted(found, key=number.__getitem__):
            weights, info = backend.read_weights(layer), backend.info(layer)
            for parameter, at in sorted(found[layer].items()):
                whole, index = weights[parameter], sorted(at)
                column = np.empty((5, len(index)))
                column[0] = whole[_by_axis(index)]
                column[1:] = np.reshape(_spread(whole), (4, 1))
                columns.append(column)
                ordered += [at[place] for place in index]
                dtypes += [info.parameters[parameter].dtype] * len(index)
        values, means, deviations, lowest, highest = np.concatenate(columns, axis=1)
        return cls(tuple(ordered), values, tuple(dtypes), means, deviations, lowest, highest)

    def __len__(self) -> int:
        return len(self.addresses)

    @cached_property
    def places(self) -> tuple[Place, ...]:
        """The suspects parameter by parameter."""
        found: list[Place] = []
        start = 0
        for (layer, parameter), group in groupby(self.addresses, key=attrgetter("layer", "parameter")):
            index = [address.index for address in group]
            found.append(Place(layer, parameter, slice(start, start + len(index)), _by_axis(index)))
            start += len(index)
        return tuple(found)

    @property
    def parameters(self) -> tuple[tuple[str, str], ...]:
        """The `(layer, parameter)` pairs they lie in, each once."""
        return tuple((place.layer, place.parameter) for place in self.places)

    @property
    def layers(self) -> tuple[str, ...]:
        """The layers they lie in, each once."""
        return tuple(dict.fromkeys(place.layer for place in self.places))

    @cached_property
    def magnitudes(self) -> Array:
        """The largest magnitude among the weights of each suspect's parameter, `(k,)`; 1 where all are zero."""
        largest = np.maximum(np.maximum(np.abs(self.lowest), np.abs(self.highest)), self.deviations)
        return np.where(largest > 0, largest, 1.0)


def _spread(values: Array) -> tuple[float, float, float, float]:
    """Mean, standard deviation, smallest and largest of a parameter, in float64; a large one is never copied whole."""
    flat = values.reshape(-1)
    if flat.size <= WHOLE:
        wide = flat.astype(np.float64)
        return float(wide.mean()), float(wide.std()), float(wide.min()), float(wide.max())
    blocks = [flat[start : start + BLOCK] for start in range(0, flat.size, BLOCK)]
    mean = sum(float(block.astype(np.float64).sum()) for block in blocks) / flat.size
    squares = sum(float(np.square(block.astype(np.float64) - mean).sum()) for block in blocks)
    return mean, float(np.sqrt(squares / flat.size)), float(flat.min()), float(flat.max())


def _by_axis(index: list[tuple[int, ...]]) -> tuple[Array, ...]:
    """Places in an array, each a tuple, as one array of numbers per axis."""
    return tuple(np.array(index, np.int64).T)
