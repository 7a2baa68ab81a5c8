"""Preprocessing of lazy inputs: each piece is preprocessed when it is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from arachne.errors import DataError
from arachne.model.lazy import LazyArray, Source, as_array
from arachne.model.values import Array, Inputs, by_name, count, read, take


class PreprocessedRows(Source):
    """Lazy inputs after some preprocessing steps.

    Args:
        inputs: One lazy array, or a mapping of them.
        steps: The preprocessing; its text can be parsed by `Preprocess.parse`.
    """

    def __init__(self, inputs: Inputs, steps: Callable[[Inputs], Inputs]) -> None:
        self._inputs, self._steps = inputs, steps
        self.n = count(inputs)
        self._last: tuple[bytes, Mapping[str, Array]] | None = None
        first = by_name(steps(read(take(inputs, slice(0, 1)))))
        self.kinds = {name: (array.shape[1:], array.dtype) for name, array in first.items()}

    def read(self, name: str, rows: Array) -> Array:
        if len(self.kinds) == 1:
            return self._all(rows)[name]
        key = np.asarray(rows).tobytes()
        if self._last is None or self._last[0] != key:  # several arrays come from one reading
            self._last = key, self._all(rows)
        return self._last[1][name]

    def describe(self, rows: Array) -> dict[str, Any]:
        chosen = by_name(take(self._inputs, rows))
        described = {name: as_lazy(array).describe() for name, array in chosen.items()}
        return {"kind": "prepared", "arrays": described, "preprocess": str(self._steps)}

    def _all(self, rows: Array) -> Mapping[str, Array]:
        if not len(rows):
            return {name: np.empty((0, *shape), dtype) for name, (shape, dtype) in self.kinds.items()}
        found = by_name(self._steps(read(take(self._inputs, rows))))
        kinds = {name: (array.shape[1:], array.dtype) for name, array in found.items()}
        if kinds != self.kinds:
            raise DataError(f"preprocessing '{self._steps}' gave different shapes or dtypes for different inputs")
        return found


def preprocess_lazily(inputs: Inputs, steps: Callable[[Inputs], Inputs]) -> Inputs:
    """Apply preprocessing steps to lazy inputs; the result is lazy."""
    source = PreprocessedRows(inputs, steps)
    arrays = {name: as_array(LazyArray(source, name)) for name in source.kinds}
    return arrays[""] if list(arrays) == [""] else arrays


def as_lazy(array: Array) -> LazyArray:
    """Return an array as the lazy array it is.

    Raises:
        DataError: It is not lazy, so that no other process can open it.
    """
    if not isinstance(array, LazyArray):
        raise DataError("inputs in memory cannot be opened elsewhere; give data that is read from files")
    return array
