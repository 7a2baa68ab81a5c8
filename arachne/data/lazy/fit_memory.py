"""Decide which inputs are held in memory and which are read lazily, by their size before and after preprocessing."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from arachne.data.lazy.row_reader import as_file_rows
from arachne.model.lazy import HeldRows, LazyArray, as_array, is_lazy
from arachne.model.values import Array, Inputs, count, count_bytes, map_arrays, take

Steps = Callable[[Inputs], Inputs]


class InMemoryRows(HeldRows):
    """The rows of an array in memory, if preprocessing would make it too large."""

    in_memory = False


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
    if not exceeds_memory(take(inputs, slice(0, 1)), count(inputs), steps, memory):
        return map_arrays(_in_memory, inputs)
    prepared_size = count_bytes(steps(take(inputs, slice(0, 1)))) * count(inputs)
    return map_arrays(lambda array: _make_lazy(array, prepared_size > memory), inputs)


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
