"""Selection: which weights of a model may change, as arrays, in the order of candidate vectors."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import Protocol

import numpy as np

from arachne.model.values import Address, Array, LayerInfo, Weights
from arachne.text import Brief
from arachne.weights.parameter_slice import ParameterSlice, unravel
from arachne.weights.storage import STORAGES

MAX_SUMMARISED_WHOLE, BLOCK = 1 << 20, 1 << 16
"""Up to how many weights of a parameter are summarised together, and how many at a time of more."""


class WeightSource(Protocol):
    """A model as far as a selection reads it; every backend is one."""

    @property
    def layers(self) -> Sequence[LayerInfo]:
        """The layers in order of execution."""

    def info(self, layer: str) -> LayerInfo:
        """The `LayerInfo` of a name."""

    def read_weights(self, layer: str) -> Mapping[str, Array]:
        """Every parameter of a layer, to look at."""


@dataclass(frozen=True, eq=False)
class Selection(Brief):
    """Which weights may change: arrays inside, `Address` objects only at the border.

    Parameters come in order of execution, then by name; weights in the order of the flattened parameter. Two selections
    are equal when they select the same weights, whatever the values of these are.

    Attributes:
        slices: The selected weights parameter by parameter, each parameter once.
        values: What the weights are now, float64 `(k,)`.
    """

    slices: tuple[ParameterSlice, ...]
    values: Array

    @classmethod
    def of(cls, source: WeightSource, addresses: Iterable[Address]) -> Selection:
        """Select the weights at these addresses, in any order; one that comes twice is selected once."""
        chosen: dict[tuple[str, str], list[tuple[int, ...]]] = {}
        for address in addresses:
            chosen.setdefault((address.layer, address.parameter), []).append(address.index)
        return cls.at(source, {key: _ravel(source, key, index) for key, index in chosen.items()})

    @classmethod
    def at(cls, source: WeightSource, chosen: Mapping[tuple[str, str], Array]) -> Selection:
        """Select weights by their positions in flattened parameters, in any order. Each parameter is read once.

        Args:
            source: The model.
            chosen: Whole numbers `(n,)` by `(layer, parameter)`.
        """
        number = {info.name: number for number, info in enumerate(source.layers)}
        slices: list[ParameterSlice] = []
        values = [np.zeros(0)]
        start = 0
        for layer, keys in groupby(sorted(chosen, key=lambda key: (number[key[0]], key[1])), key=lambda key: key[0]):
            weights, info = source.read_weights(layer), source.info(layer)
            for key in keys:
                flat, whole = _ascending(chosen[key]), weights[key[1]]
                if not len(flat):
                    continue
                if flat[0] < 0 or flat[-1] >= whole.size:
                    raise IndexError(f"'{'.'.join(key)}' has {whole.size:,} weights; there is none at {flat[[0, -1]]}")
                numbers = slice(start, start + len(flat))
                storage = info.parameters[key[1]].storage
                slices.append(ParameterSlice(*key, tuple(whole.shape), storage, numbers, flat, *_spread(whole)))
                values.append(np.asarray(_at(whole, flat), np.float64))
                start = numbers.stop
        return cls(tuple(slices), np.concatenate(values))

    @classmethod
    def whole(cls, source: WeightSource, parameters: Iterable[tuple[str, str]]) -> Selection:
        """Select every weight of these `(layer, parameter)`."""
        sizes = {key: source.info(key[0]).parameters[key[1]].size for key in parameters}
        return cls.at(source, {key: np.arange(size) for key, size in sizes.items()})

    @classmethod
    def unread(cls, parameters: Iterable[tuple[str, str]], rows: Iterable[Array]) -> Selection:
        """Select weights of a model that is not at hand; `read` completes the selection.

        Until then values and statistics are NaN, the storage is float32, and shapes are the smallest that fit.

        Args:
            parameters: The `(layer, parameter)` pairs, in candidate order.
            rows: For each of them where its weights lie, int64 `(n, axes)`, in ascending order.

        Raises:
            ValueError: The numbers are none of weights or are not in ascending order, or a parameter stands twice.
        """
        slices: list[ParameterSlice] = []
        start = 0
        for (layer, parameter), own in zip(parameters, rows, strict=True):
            if own.ndim != 2 or own.dtype != np.int64 or not len(own) or (own < 0).any():
                raise ValueError(f"the positions of weights in '{layer}.{parameter}' are no rows of whole numbers")
            shape = tuple(int(size) + 1 for size in own.max(axis=0))
            flat = np.ravel_multi_index(tuple(own.T), shape) if shape else np.zeros(1, np.int64)
            if (np.diff(flat) <= 0).any():
                raise ValueError(f"the positions of weights in '{layer}.{parameter}' are not in ascending order")
            numbers = slice(start, start + len(flat))
            slices.append(ParameterSlice(layer, parameter, shape, STORAGES["float32"], numbers, flat))
            start = numbers.stop
        if len({slice_.key for slice_ in slices}) < len(slices):
            raise ValueError("a parameter of the selected weights stands twice")
        return cls(tuple(slices), np.full(start, np.nan))

    def read(self, source: WeightSource) -> Selection:
        """Select the same weights of a model, with its values.

        Raises:
            ValueError: They are not in the order of this model.
        """
        chosen = {}
        for slice_ in self.slices:
            rows = [tuple(row) for row in slice_.rows.tolist()]
            chosen[slice_.key] = _ravel(source, slice_.key, rows)
        found = Selection.at(source, chosen)
        if found.parameters != self.parameters:
            raise ValueError("the selected weights are in another order than those of the model")
        return found

    def __len__(self) -> int:
        return len(self.values)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Selection) and self.digest == other.digest)

    def __hash__(self) -> int:
        return hash(self.digest)

    @cached_property
    def digest(self) -> str:
        """A hash of which weights are selected."""
        digest = hashlib.blake2b(digest_size=16)
        for slice_ in self.slices:
            digest.update(repr((slice_.layer, slice_.parameter, slice_.shape, len(slice_))).encode())
            digest.update(np.ascontiguousarray(slice_.flat, np.int64).data)
        return digest.hexdigest()

    @cached_property
    def addresses(self) -> tuple[Address, ...]:
        """Where the weights are, as objects: for people and files, one Python object per weight."""
        return self.first_addresses(len(self))

    def first_addresses(self, count: int) -> tuple[Address, ...]:
        """The addresses of the first `count` weights."""
        found: list[Address] = []
        for slice_ in self.slices:
            index = unravel(slice_.flat[: max(0, count - len(found))], slice_.shape)
            rows = zip(*(axis.tolist() for axis in index), strict=True) if index else [()] * (count > len(found))
            found += [Address(slice_.layer, slice_.parameter, row) for row in rows]
        return tuple(found)

    @property
    def parameters(self) -> tuple[tuple[str, str], ...]:
        """The `(layer, parameter)` pairs they lie in, each once."""
        return tuple(slice_.key for slice_ in self.slices)

    @property
    def layers(self) -> tuple[str, ...]:
        """The layers they lie in, each once."""
        return tuple(dict.fromkeys(slice_.layer for slice_ in self.slices))

    def in_layer(self, layer: str) -> slice:
        """Which elements of a candidate vector lie in a layer."""
        own = [slice_.numbers for slice_ in self.slices if slice_.layer == layer]
        return slice(own[0].start, own[-1].stop) if own else slice(0, 0)

    @cached_property
    def parameter_numbers(self) -> Array:
        """The number in `slices` of each weight's parameter, int64 `(k,)`."""
        return np.repeat(np.arange(len(self.slices)), [len(slice_) for slice_ in self.slices])

    @cached_property
    def means(self) -> Array:
        """Mean of all weights of the parameter each weight lies in, `(k,)`."""
        return self._each("mean")

    @cached_property
    def deviations(self) -> Array:
        """Standard deviation of all weights of the parameter each weight lies in, `(k,)`."""
        return self._each("deviation")

    @cached_property
    def lowest(self) -> Array:
        """The smallest weight of the parameter each weight lies in, `(k,)`."""
        return self._each("lowest")

    @cached_property
    def highest(self) -> Array:
        """The largest weight in the parameter of each weight, `(k,)`."""
        return self._each("highest")

    @cached_property
    def magnitudes(self) -> Array:
        """The largest magnitude among the weights of each weight's parameter, `(k,)`; 1 where all are zero."""
        largest = np.maximum(np.maximum(np.abs(self.lowest), np.abs(self.highest)), self.deviations)
        return np.where(largest > 0, largest, 1.0)

    def _each(self, statistic: str) -> Array:
        return np.array([getattr(slice_, statistic) for slice_ in self.slices], np.float64)[self.parameter_numbers]

    def take(self, numbers: Array) -> Selection:
        """Select some of these weights, by their numbers in candidate vectors, ascending."""
        slices: list[ParameterSlice] = []
        for slice_ in self.slices:
            first, last = np.searchsorted(numbers, [slice_.numbers.start, slice_.numbers.stop])
            if last > first:
                flat = slice_.flat[numbers[first:last] - slice_.numbers.start]
                slices.append(replace(slice_, numbers=slice(int(first), int(last)), flat=flat))
        return Selection(tuple(slices), self.values[numbers])

    def numbers_of(self, addresses: Sequence[Address]) -> Array:
        """Where addresses of selected weights, in any order, stand in candidate vectors, int64 `(n,)`."""
        known = {address: number for number, address in enumerate(self.addresses)}
        return np.array([known[address] for address in addresses], np.int64)

    def union(self, other: Selection, source: WeightSource) -> Selection:
        """Select what either selects, with the values of a model."""
        chosen: dict[tuple[str, str], Array] = {slice_.key: slice_.flat for slice_ in self.slices}
        for slice_ in other.slices:
            chosen[slice_.key] = np.concatenate([chosen.get(slice_.key, slice_.flat[:0]), slice_.flat])
        return Selection.at(source, chosen)

    def numbers_in(self, other: Selection) -> Array:
        """Where these weights stand in the candidate vectors of another selection that has them all, int64 `(k,)`."""
        found = [np.zeros(0, np.int64)]
        wider = {slice_.key: slice_ for slice_ in other.slices}
        for slice_ in self.slices:
            found.append(np.searchsorted(wider[slice_.key].flat, slice_.flat) + wider[slice_.key].numbers.start)
        return np.concatenate(found)

    def round(self, values: Array) -> Array:
        """Round candidate vectors `(..., k)` to the nearest values the model can store, float64."""
        found = np.empty(values.shape)
        for slice_ in self.slices:
            found[..., slice_.numbers] = slice_.element_storage.round(values[..., slice_.numbers])
        return found

    def clip(self, values: Array) -> Array:
        """Bring values `(k,)` beyond what the model can store back to the end of it; nothing is rounded."""
        parts = [slice_.element_storage.clip(values[slice_.numbers]) for slice_ in self.slices]
        return np.concatenate(parts) if parts else values

    def put(self, values: Array, weights: Weights) -> dict[tuple[str, str], Array]:
        """Copy the whole parameters that the selection lies in, out of `weights`, and put these values `(k,)` in."""
        found = {}
        for slice_ in self.slices:
            whole = np.array(weights[slice_.key], order="C")
            whole.reshape(-1)[slice_.flat] = values[slice_.numbers]
            found[slice_.key] = whole
        return found

    def whole_parameters(self, source: WeightSource) -> dict[tuple[str, str], Array]:
        """Copy the whole parameters that the selection lies in out of a model."""
        found: dict[tuple[str, str], Array] = {}
        for layer in self.layers:
            weights = source.read_weights(layer)
            found |= {key: np.array(weights[key[1]], order="C") for key in self.parameters if key[0] == layer}
        return found


def _ravel(source: WeightSource, key: tuple[str, str], index: Sequence[tuple[int, ...]]) -> Array:
    """Turn the indices of weights of a parameter into their positions in the flattened parameter."""
    layer, parameter = key
    if layer not in {info.name for info in source.layers}:
        raise KeyError(layer)
    shape = source.info(layer).parameters[parameter].shape
    try:
        columns = np.array(index, np.int64).reshape(len(index), len(shape)).T
        return np.asarray(np.ravel_multi_index(tuple(columns), shape) if shape else np.zeros(1), np.int64)
    except (ValueError, OverflowError) as error:
        raise IndexError(f"an index of '{layer}.{parameter}' is outside a parameter of shape {shape}") from error


def _ascending(flat: Array) -> Array:
    """Bring positions into order, each once."""
    flat = np.asarray(flat, np.int64)
    return flat if (np.diff(flat) > 0).all() else np.unique(flat)


def _at(whole: Array, flat: Array) -> Array:
    """Some elements of an array, which is not copied for it."""
    found: Array = whole.reshape(-1)[flat] if whole.flags.c_contiguous else whole[unravel(flat, whole.shape)]
    return found


def _spread(values: Array) -> tuple[float, float, float, float]:
    """Mean, standard deviation, smallest and largest of a parameter, in float64; a large one is never copied whole."""
    flat = values.reshape(-1)
    if flat.size <= MAX_SUMMARISED_WHOLE:
        wide = flat.astype(np.float64)
        return float(wide.mean()), float(wide.std()), float(wide.min()), float(wide.max())
    blocks = [flat[start : start + BLOCK] for start in range(0, flat.size, BLOCK)]
    mean = sum(float(block.astype(np.float64).sum()) for block in blocks) / flat.size
    squares = sum(float(np.square(block.astype(np.float64) - mean).sum()) for block in blocks)
    return mean, float(np.sqrt(squares / flat.size)), float(flat.min()), float(flat.max())
