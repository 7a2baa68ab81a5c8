"""Arrays that are read from their file some rows at a time: npy files, stored members of an npz.

Rows are read with plain reads and not through a memory map: pages of a map count as the process's memory until the
system wants them back, and a file that somebody cuts off would end the process without a word.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from arachne.errors import DataError
from arachne.lazy import LazyArray, Source, as_array
from arachne.reading import told
from arachne.values import Array

GAP = 1 << 16
"""Up to this many bytes between two rows are read with them rather than skipped."""

SPAN = 1 << 24
"""At most this many bytes are read at once, unless one row has more."""


@dataclass(frozen=True)
class Stamp:
    """A file as it was when its reading began.

    Attributes:
        path: The file.
        size: Its bytes.
        changed: When it was last written to, in nanoseconds.
    """

    path: Path
    size: int
    changed: int

    @classmethod
    def of(cls, path: Path) -> Stamp:
        """The file as it is now."""
        try:
            now = path.stat()
        except OSError as error:
            raise DataError(f"cannot read '{path}': {told(error)}") from error
        return cls(path.absolute(), now.st_size, now.st_mtime_ns)

    def check(self, stream: BinaryIO | None = None) -> None:
        """Refuse the file if it is not the same any more.

        Raises:
            DataError: It was written to, replaced or removed.
        """
        try:
            now = os.stat(self.path) if stream is None else os.fstat(stream.fileno())
        except OSError as error:
            raise DataError(f"cannot read '{self.path}' any more: {told(error)}") from error
        if (now.st_size, now.st_mtime_ns) != (self.size, self.changed):
            raise DataError(
                f"'{self.path}' was changed while it was being read; start again when nobody writes to it any more"
            )

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {"path": str(self.path), "size": self.size, "changed": self.changed}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Stamp:
        """From plain values."""
        return cls(Path(values["path"]), int(values["size"]), int(values["changed"]))


class FileRows(Source):
    """The rows of an array that lies in a file as it is, uncompressed and row after row.

    Args:
        stamp: The file.
        offset: Where the first row starts.
        shape: The shape of the whole array, `(n, ...)`.
        dtype: Its dtype.
        rows: Which rows of the file are meant; all when None.
    """

    def __init__(
        self, stamp: Stamp, offset: int, shape: tuple[int, ...], dtype: npt.DTypeLike, rows: Array | None = None
    ) -> None:
        self._stamp, self._offset, self._shape, self._rows = stamp, offset, shape, rows
        self._dtype: np.dtype[Any] = np.dtype(dtype)
        self._row = int(np.prod(shape[1:], dtype=np.int64)) * self._dtype.itemsize
        self.n = shape[0] if rows is None else len(rows)
        self.kinds = {"": (shape[1:], self._dtype)}

    @classmethod
    def of(cls, array: np.memmap[Any, Any]) -> FileRows | None:
        """The array behind a memory map of a file; None where its rows do not lie one after the other."""
        name = getattr(array, "filename", None)
        if name is None or not array.flags.c_contiguous or not array.ndim:
            return None
        whole: Any = array
        while isinstance(getattr(whole, "base", None), np.memmap):
            whole = whole.base  # a part of a map, as a slice is, has the offset of the whole
        begins = array.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
        return cls(Stamp.of(Path(name)), int(whole.offset) + begins, array.shape, array.dtype)

    def read(self, name: str, rows: Array) -> Array:
        wanted = rows if self._rows is None else self._rows[rows]
        found = np.empty((len(wanted), *self._shape[1:]), self._dtype)
        if not len(wanted) or not self._row:
            return found
        order = np.argsort(wanted, kind="stable")
        ascending = wanted[order]
        in_order = bool((wanted[:-1] <= wanted[1:]).all())
        with self._opened() as stream:
            self._check(stream)
            for part in self._spans(ascending):
                own = ascending[part]
                first, n = int(own[0]), int(own[-1]) - int(own[0]) + 1
                block = self._block(stream, first, n)
                chosen = block if n == len(own) else block[own - first]
                found[part if in_order else order[part]] = chosen
        return found

    def describe(self, rows: Array) -> dict[str, Any]:
        numbers = rows if self._rows is None else self._rows[rows]
        shape = list(self._shape)
        return {
            "kind": "file",
            "file": self._stamp.to_json(),
            "offset": self._offset,
            "shape": shape,
            "dtype": self._dtype.str,
            "rows": numbers.tolist(),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> FileRows:
        """What `describe` told of."""
        rows = np.asarray(values["rows"], np.int64)
        dtype = np.dtype(str(values["dtype"]))
        if dtype.hasobject:
            raise DataError("a description of data asks for Python objects, expected numbers")
        shape = tuple(int(side) for side in values["shape"])
        if len(rows) and (rows.min() < 0 or rows.max() >= shape[0]):
            raise DataError(f"a description of data asks for rows beyond the {shape[0]} of '{values['file']['path']}'")
        return cls(Stamp.from_json(values["file"]), int(values["offset"]), shape, dtype, rows)

    def _opened(self) -> BinaryIO:
        try:
            return self._stamp.path.open("rb", buffering=0)
        except OSError as error:
            raise DataError(f"cannot read '{self._stamp.path}' any more: {told(error)}") from error

    def _check(self, stream: BinaryIO) -> None:
        """Refuse the file if it is not the same any more."""
        self._stamp.check(stream)

    def _spans(self, rows: Array) -> Iterator[slice]:
        """Parts of ascending row numbers that are read together."""
        if int(rows[-1]) - int(rows[0]) + 1 <= len(rows) and len(rows) * self._row <= SPAN:
            yield slice(0, len(rows))
            return
        most, gap = max(1, SPAN // self._row), max(1, GAP // self._row)
        breaks = np.flatnonzero(np.diff(rows) > gap) + 1
        start = 0
        for stop in [*breaks.tolist(), len(rows)]:
            while start < stop:
                until = int(np.searchsorted(rows[start:stop], rows[start] + most)) + start
                yield slice(start, until)
                start = until

    def _block(self, stream: BinaryIO, first: int, n: int) -> Array:
        block = np.empty((n, *self._shape[1:]), self._dtype)
        view, filled = memoryview(block.reshape(-1).view(np.uint8).data), 0
        try:
            stream.seek(self._offset + first * self._row)
            while filled < len(view):
                more = stream.readinto(view[filled:])  # type: ignore[attr-defined]  # an unbuffered file has it
                if not more:
                    raise DataError(f"'{self._stamp.path}' ends in row {first + filled // self._row}: it is cut off")
                filled += more
        except OSError as error:
            raise DataError(f"cannot read '{self._stamp.path}' any more: {told(error)}") from error
        return block


class Cast(Source):
    """The rows of another array in another dtype; numbers too large for it become infinite.

    Args:
        array: The array.
        dtype: The dtype.
    """

    def __init__(self, array: LazyArray, dtype: npt.DTypeLike) -> None:
        self._array, self._dtype = array, np.dtype(dtype)
        self.n, self.kinds = len(array), {"": (array.shape[1:], self._dtype)}

    def read(self, name: str, rows: Array) -> Array:
        with np.errstate(over="ignore"):
            return self._array[rows].astype(self._dtype)

    def describe(self, rows: Array) -> dict[str, Any]:
        return {"kind": "cast", "array": self._array.take(rows).describe(), "dtype": self._dtype.str}


def by_piece(array: Array) -> Array | None:
    """The same array read by piece, if it is a memory map of a file's rows; None for any other."""
    source = FileRows.of(array) if isinstance(array, np.memmap) else None
    return None if source is None else as_array(LazyArray(source))


def cast(array: Array, dtype: npt.DTypeLike) -> Array:
    """A lazy array in another dtype."""
    if not isinstance(array, LazyArray):
        raise TypeError("expected a lazy array")
    return as_array(LazyArray(Cast(array, dtype)))
