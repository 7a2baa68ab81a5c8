"""Which inputs are held and which are read by piece: those that take more memory than they may are never held."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from arachne.data.pieces import by_piece
from arachne.data.prepared import as_lazy
from arachne.lazy import LazyArray, Source, as_array, is_lazy
from arachne.values import Array, Inputs, count, take

Steps = Callable[[Inputs], Inputs]


class Held(Source):
    """The rows of an array that is in memory, for steps that would make it too large.

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


def bytes_of(inputs: Inputs) -> int:
    """How many bytes some inputs take."""
    return sum(array.nbytes for array in (inputs.values() if isinstance(inputs, Mapping) else (inputs,)))


def too_large(first: Inputs, n: int, steps: Steps, memory: int) -> bool:
    """Whether `n` inputs like the first, `(1, ...)`, take more than `memory` bytes before or after some steps."""
    return n * max(bytes_of(first), bytes_of(steps(first))) > memory


def within(inputs: Inputs, steps: Steps, memory: int) -> Inputs:
    """Inputs that fit `memory` as they are, others as lazy arrays.

    Args:
        inputs: In memory, memory-mapped or lazy already.
        steps: The preprocessing that is still to be done.
        memory: How many bytes may be held.

    Raises:
        DataError: The steps cannot work on these inputs.
    """
    if is_lazy(inputs) or not count(inputs):
        return inputs
    arrays = inputs if isinstance(inputs, Mapping) else {"": inputs}
    if too_large(take(inputs, slice(0, 1)), count(inputs), steps, memory):
        prepared_size = bytes_of(steps(take(inputs, slice(0, 1)))) * count(inputs)
        found = {name: _lazily(array, prepared_size > memory) for name, array in arrays.items()}
    else:
        found = {name: _in_memory(array) for name, array in arrays.items()}
    return found if isinstance(inputs, Mapping) else found[""]


def _lazily(array: Array, grows: bool) -> Array:
    """Read by piece from its file; what is in memory already stays there, and only what becomes of it is made late."""
    found = by_piece(array)
    if found is not None:
        return found
    return as_array(LazyArray(Held(array))) if grows else array


def _in_memory(array: Array) -> Array:
    """A member of an npz is read; npy files stay memory-mapped."""
    mapped = isinstance(array, np.memmap) and str(array.filename).lower().endswith(".npz")
    return np.array(array) if mapped else array
