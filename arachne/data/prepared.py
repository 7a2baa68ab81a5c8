"""Preprocessing of inputs that are read by piece: each piece is preprocessed when it is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from arachne.errors import DataError
from arachne.lazy import LazyArray, Source, as_array
from arachne.values import Array, Inputs, count, read, take


class Prepared(Source):
    """What some steps make of lazy inputs.

    Args:
        inputs: One lazy array, or a mapping of them.
        steps: From some of the inputs to those the model takes; as text it is what `Preprocess.parse` takes.
    """

    def __init__(self, inputs: Inputs, steps: Callable[[Inputs], Inputs]) -> None:
        self._inputs, self._steps = inputs, steps
        self.n = count(inputs)
        self._last: tuple[bytes, Mapping[str, Array]] | None = None
        first = _named(steps(read(take(inputs, slice(0, 1)))))
        self.kinds = {name: (array.shape[1:], array.dtype) for name, array in first.items()}

    def read(self, name: str, rows: Array) -> Array:
        if len(self.kinds) == 1:
            return self._all(rows)[name]
        key = np.asarray(rows).tobytes()
        if self._last is None or self._last[0] != key:  # several arrays come from one reading
            self._last = key, self._all(rows)
        return self._last[1][name]

    def describe(self, rows: Array) -> dict[str, Any]:
        chosen = take(self._inputs, rows)
        arrays = chosen if isinstance(chosen, Mapping) else {"": chosen}
        told = {name: as_lazy(array).describe() for name, array in arrays.items()}
        return {"kind": "prepared", "arrays": told, "preprocess": str(self._steps)}

    def _all(self, rows: Array) -> Mapping[str, Array]:
        if not len(rows):
            return {name: np.empty((0, *shape), dtype) for name, (shape, dtype) in self.kinds.items()}
        found = _named(self._steps(read(take(self._inputs, rows))))
        kinds = {name: (array.shape[1:], array.dtype) for name, array in found.items()}
        if kinds != self.kinds:
            raise DataError(f"preprocessing '{self._steps}' gave different shapes or dtypes for different inputs")
        return found


def prepared(inputs: Inputs, steps: Callable[[Inputs], Inputs]) -> Inputs:
    """Lazy inputs behind some steps, lazy as well."""
    source = Prepared(inputs, steps)
    arrays = {name: as_array(LazyArray(source, name)) for name in source.kinds}
    return arrays[""] if list(arrays) == [""] else arrays


def as_lazy(array: Array) -> LazyArray:
    """The lazy array that an array is.

    Raises:
        DataError: It is none: it lives in this process alone.
    """
    if not isinstance(array, LazyArray):
        raise DataError("inputs in memory cannot be opened elsewhere; give data that is read from files")
    return array


def _named(inputs: Inputs) -> Mapping[str, Array]:
    return inputs if isinstance(inputs, Mapping) else {"": inputs}
