"""Arrays whose rows are read from a file when they are needed: npy files, uncompressed members of an npz.

Rows are read with plain reads and not through a memory map: pages of a map count as the process's memory until the
system wants them back, and a file that is truncated meanwhile would kill the process.
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
from arachne.io.reading import error_text
from arachne.model.lazy import LazyArray, Source, as_array
from arachne.model.values import Array

MAX_GAP_BYTES = 1 << 16
"""The most bytes between two rows that are read with them rather than skipped."""

MAX_READ_BYTES = 1 << 24
"""The most bytes read at a time, unless one row has more."""


@dataclass(frozen=True)
class Stamp:
    """Identifies a version of a file by its size and time of change.

    Attributes:
        path: The file.
        size: Its size in bytes.
        changed: Its time of change in nanoseconds.
    """

    path: Path
    size: int
    changed: int

    @classmethod
    def of(cls, path: Path) -> Stamp:
        """Stamp the file as it is now."""
        try:
            now = path.stat()
        except OSError as error:
            raise DataError(f"cannot read '{path}': {error_text(error)}") from error
        return cls(path.absolute(), now.st_size, now.st_mtime_ns)

    def check(self, stream: BinaryIO | None = None) -> None:
        """Refuse the file if it has changed since.

        Raises:
            DataError: The file was written to, replaced or removed.
        """
        try:
            now = os.stat(self.path) if stream is None else os.fstat(stream.fileno())
        except OSError as error:
            raise DataError(f"cannot read '{self.path}' any more: {error_text(error)}") from error
        if (now.st_size, now.st_mtime_ns) != (self.size, self.changed):
            raise DataError(
                f"'{self.path}' was changed while it was being read; start again when nobody writes to it any more"
            )

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {"path": str(self.path), "size": self.size, "changed": self.changed}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Stamp:
        """Read plain values."""
        return cls(Path(values["path"]), int(values["size"]), int(values["changed"]))


class FileRows(Source):
    """The rows of an array that is stored uncompressed and row by row in a file.

    Args:
        stamp: The file.
        offset: The offset of the first row in bytes.
        shape: The shape of the whole array, `(n, ...)`.
        dtype: Its dtype.
        rows: The rows of the file to use; all when None.
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
        """Return the rows behind a memory map of a file; None if they are not contiguous."""
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
        with self._open() as stream:
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
        """Open rows from the result of `describe`."""
        rows = np.asarray(values["rows"], np.int64)
        dtype = np.dtype(str(values["dtype"]))
        if dtype.hasobject:
            raise DataError("a description of data asks for Python objects, expected numbers")
        shape = tuple(int(side) for side in values["shape"])
        if len(rows) and (rows.min() < 0 or rows.max() >= shape[0]):
            raise DataError(f"a description of data asks for rows beyond the {shape[0]} of '{values['file']['path']}'")
        return cls(Stamp.from_json(values["file"]), int(values["offset"]), shape, dtype, rows)

    def _open(self) -> BinaryIO:
        try:
            return self._stamp.path.open("rb", buffering=0)
        except OSError as error:
            raise DataError(f"cannot read '{self._stamp.path}' any more: {error_text(error)}") from error

    def _check(self, stream: BinaryIO) -> None:
        """Refuse the file if it has changed since."""
        self._stamp.check(stream)

    def _spans(self, rows: Array) -> Iterator[slice]:
        """Yield slices of ascending row numbers that are read together."""
        if int(rows[-1]) - int(rows[0]) + 1 <= len(rows) and len(rows) * self._row <= MAX_READ_BYTES:
            yield slice(0, len(rows))
            return
        most, gap = max(1, MAX_READ_BYTES // self._row), max(1, MAX_GAP_BYTES // self._row)
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
            raise DataError(f"cannot read '{self._stamp.path}' any more: {error_text(error)}") from error
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


def as_file_rows(array: Array) -> Array | None:
    """Return a memory map of a file's rows as a lazy array; None for any other array."""
    source = FileRows.of(array) if isinstance(array, np.memmap) else None
    return None if source is None else as_array(LazyArray(source))


def cast(array: Array, dtype: npt.DTypeLike) -> Array:
    """Convert a lazy array to another dtype."""
    if not isinstance(array, LazyArray):
        raise TypeError("expected a lazy array")
    return as_array(LazyArray(Cast(array, dtype)))
