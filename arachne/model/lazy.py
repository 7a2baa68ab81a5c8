"""Inputs that are read when they are needed, some rows at a time, so that they may be larger than memory.

A `Source` reads rows; a `LazyArray` is some rows of one of its arrays. It has the shape and dtype of an array and gives
ordinary arrays when it is indexed, which is when rows are read. `take` chooses rows and reads nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, cast
from weakref import ref

import numpy as np
import numpy.typing as npt

from arachne.errors import DataError

Array = npt.NDArray[Any]
Rows = Array | slice | Sequence[int]

MEMORY = 2 << 30
"""Default limit, in bytes, of data in memory and of what a search keeps between candidates."""


class Source(ABC):
    """Where rows are read from. It reads the same rows at any time, or raises.

    Attributes:
        n: How many rows there are.
        kinds: Shape of a row and dtype, for each of its arrays by name; the name of a single one is ''.
        in_memory: Whether rows lie in memory as they are, so that reading some takes no longer than copying them.
    """

    in_memory = False
    n: int
    kinds: Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]

    @abstractmethod
    def read(self, name: str, rows: Array) -> Array:
        """The chosen rows of one array, `(len(rows), ...)`, in the order given.

        Called for one piece of the data after the other, mostly in ascending order.

        Raises:
            DataError: They cannot be read, or are not any more what they were.
        """

    @abstractmethod
    def describe(self, rows: Array) -> dict[str, Any]:
        """Plain values, enough to open these rows elsewhere as a source: `arachne.data.lazy.source_spec` does so.

        Raises:
            DataError: It lives in this process alone.
        """


class LazyArray:
    """Some rows of a source's array, read when they are asked for.

    Args:
        source: Where rows are read from.
        name: Which of its arrays.
        rows: Which of its rows, in this order; all when None.
    """

    def __init__(self, source: Source, name: str = "", rows: Array | None = None) -> None:
        self.source, self.name, self.rows = source, name, rows
        shape, self.dtype = source.kinds[name]
        self.shape = (source.n if rows is None else len(rows), *shape)
        self._copied: ref[Array] | None = None

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of values."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def nbytes(self) -> int:
        """How many bytes all rows would take."""
        return self.size * self.dtype.itemsize

    def take(self, rows: Rows) -> LazyArray:
        """Select rows by their positions or by a mask. Nothing is read."""
        return LazyArray(self.source, self.name, self._row_numbers(rows))

    def __getitem__(self, key: Any) -> Array:
        """Index as a NumPy array does; this reads the rows."""
        first, rest = (key[0], key[1:]) if isinstance(key, tuple) else (key, ())
        if isinstance(first, (int, np.integer)):
            row: Array = self.source.read(self.name, self._row_numbers(np.array([first])))[0]
            return row[rest] if rest else row
        found = self.source.read(self.name, self._row_numbers(first))
        return found[(slice(None), *rest)] if rest else found

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """All rows, read into memory."""
        found = self.read()
        return found if dtype is None else found.astype(dtype)

    def read(self) -> Array:
        """Read all rows; rows copied from memory are shared while a caller holds them."""
        found = None if self._copied is None else self._copied()
        if found is None:
            found = self[:]
            self._copied = ref(found) if self.source.in_memory else None
        return found

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_copied": None}

    def describe(self) -> dict[str, Any]:
        """Plain values, enough to read the same rows elsewhere: `arachne.data.lazy.source_spec` opens them."""
        rows = np.arange(self.source.n) if self.rows is None else self.rows
        return {"name": self.name, "source": self.source.describe(rows)}

    def _row_numbers(self, rows: Rows) -> Array:
        """Return the source's row numbers for some of these rows, int64."""
        if isinstance(rows, slice):
            if self.rows is not None:
                return self.rows[rows]
            return np.arange(*rows.indices(len(self)), dtype=np.int64)
        chosen = np.asarray(rows)
        if chosen.dtype == bool:
            if len(chosen) != len(self):
                raise IndexError(f"expected a mask of {len(self)} rows, got {len(chosen)}")
            chosen = np.flatnonzero(chosen)
        chosen = chosen.astype(np.int64)
        if len(chosen) and (chosen.max() >= len(self) or chosen.min() < -len(self)):
            raise IndexError(f"row {chosen.max() if chosen.max() >= len(self) else chosen.min()} of {len(self)} rows")
        chosen = np.where(chosen < 0, chosen + len(self), chosen)
        return chosen if self.rows is None else self.rows[chosen]


class HeldRows(Source):
    """The rows of an array that is in memory anyway: some of them are chosen and not copied.

    Args:
        array: The array.
    """

    in_memory = True

    def __init__(self, array: Array) -> None:
        self._array = array
        self.n, self.kinds = len(array), {"": (array.shape[1:], array.dtype)}

    def read(self, name: str, rows: Array) -> Array:
        return np.asarray(self._array[rows])

    def describe(self, rows: Array) -> dict[str, Any]:
        raise DataError("inputs in memory cannot be opened elsewhere; give data that is read from files")


class Chained(Source):
    """Several arrays one after the other, of which some may be lazy.

    Args:
        parts: The arrays, with rows of one shape; they get the dtype of the first.
    """

    def __init__(self, parts: Sequence[Array | LazyArray]) -> None:
        self.parts = tuple(parts)
        self.kinds = {"": (tuple(parts[0].shape[1:]), np.dtype(parts[0].dtype))}
        self._starts = np.cumsum([0, *map(len, parts)])
        self.n = int(self._starts[-1])
        self.in_memory = not any(map(is_lazy, parts))

    def read(self, name: str, rows: Array) -> Array:
        shape, dtype = self.kinds[""]
        found = np.empty((len(rows), *shape), dtype)
        owner = np.searchsorted(self._starts, rows, side="right") - 1
        for number in np.unique(owner).tolist():
            own = owner == number
            found[own] = self.parts[number][rows[own] - self._starts[number]]
        return found

    def describe(self, rows: Array) -> dict[str, Any]:
        owner = np.searchsorted(self._starts, rows, side="right") - 1
        edges = [0, *(np.flatnonzero(np.diff(owner)) + 1).tolist(), len(rows)] if len(rows) else []
        parts = []
        for start, stop in pairwise(edges):
            part, first = self.parts[owner[start]], self._starts[owner[start]]
            if not isinstance(part, LazyArray):
                raise DataError("inputs in memory cannot be opened elsewhere; give data that is read from files")
            parts.append(part.take(rows[start:stop] - first).describe())
        return {"kind": "chained", "parts": parts}


def is_lazy(inputs: Any) -> bool:
    """Whether inputs, an array or a mapping of arrays, are read when they are needed, and not from memory."""
    arrays = inputs.values() if isinstance(inputs, Mapping) else (inputs,)
    return any(isinstance(array, LazyArray) and not array.source.in_memory for array in arrays)


def is_plain(inputs: Any) -> bool:
    """Whether inputs are ordinary arrays, and not rows of something else."""
    arrays = inputs.values() if isinstance(inputs, Mapping) else (inputs,)
    return not any(isinstance(array, LazyArray) for array in arrays)


def concatenate(first: Array, second: Array) -> Array:
    """Concatenate the rows of both, in the dtype of the first; lazy where one of them is."""
    if not (is_plain(first) and is_plain(second)):
        return as_array(LazyArray(Chained([first, second])))
    return np.concatenate([first, second.astype(first.dtype)])


def as_array(array: LazyArray) -> Array:
    """Cast a lazy array to `Array` for the type checker; inputs may be either."""
    return cast(Array, array)
