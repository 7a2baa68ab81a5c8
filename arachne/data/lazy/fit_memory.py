"""Decide which inputs are held in memory and which are read lazily, by their size before and after preprocessing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from arachne.data.lazy.preprocess import as_lazy
from arachne.data.lazy.row_reader import as_file_rows
from arachne.model.lazy import LazyArray, Source, as_array, is_lazy
from arachne.model.values import Array, Inputs, count, take

Steps = Callable[[Inputs], Inputs]


class InMemoryRows(Source):
    """The rows of an array in memory, if preprocessing would make it too large.

    Args:
        array: The array.
    """

    def __init__(self, array: Array) -> None:
        self._array = array
        self.n, self.kinds = len(array), {"": (array.shape[1:], array.dtype)}

    def read(self, name: str, rows: Array) -> Array:
        return np.asarray(self._array[rows])

    def describe(self, rows: Array) -> dict[str, Any]:
        return as_lazy(self._array).describe()  # says that it lives in this process alone


def count_bytes(inputs: Inputs) -> int:
    """Count the bytes of some inputs."""
    return sum(array.nbytes for array in (inputs.values() if isinstance(inputs, Mapping) else (inputs,)))


def exceeds_memory(first: Inputs, n: int, steps: Steps, memory: int) -> bool:
    """Whether `n` inputs like the first, `(1, ...)`, take more than `memory` bytes before or after some steps."""
    return n * max(count_bytes(first), count_bytes(steps(first))) > memory


def fit_memory(inputs: Inputs, steps: Steps, memory: int) -> Inputs:
    """Return inputs that fit `memory` as they are, and others as lazy arrays.

    Args:
        inputs: Arrays in memory, memory-mapped or lazy.
        steps: The preprocessing that is still to be done.
        memory: The most bytes to hold.

    Raises:
        DataError: The steps do not fit these inputs.
    """
    if is_lazy(inputs) or not count(inputs):
        return inputs
    arrays = inputs if isinstance(inputs, Mapping) else {"": inputs}
    if exceeds_memory(take(inputs, slice(0, 1)), count(inputs), steps, memory):
        prepared_size = count_bytes(steps(take(inputs, slice(0, 1)))) * count(inputs)
        found = {name: _make_lazy(array, prepared_size > memory) for name, array in arrays.items()}
    else:
        found = {name: _in_memory(array) for name, array in arrays.items()}
    return found if isinstance(inputs, Mapping) else found[""]


def _make_lazy(array: Array, grows: bool) -> Array:
    """Read an array lazily from its file; one in memory stays there, and only its preprocessing is lazy."""
    found = as_file_rows(array)
    if found is not None:
        return found
    return as_array(LazyArray(InMemoryRows(array))) if grows else array


def _in_memory(array: Array) -> Array:
    """Read a member of an npz; npy files stay memory-mapped."""
    mapped = isinstance(array, np.memmap) and str(array.filename).lower().endswith(".npz")
    return np.array(array) if mapped else array
