"""Temporary files for large arrays that are computed from lazy inputs."""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from arachne.data.lazy.row_reader import FileRows, Stamp
from arachne.errors import DataError, EnvironmentFaultError
from arachne.model.lazy import LazyArray, as_array, is_lazy
from arachne.model.values import Array, blocks

SPILL_ABOVE_BYTES = 64 << 20
"""Arrays of more bytes than this are written to a file."""

SPILL_COLUMNS_ABOVE_BYTES = 16 << 20
"""The limit for the columns that one search needs, of which there are several at a time."""

BATCH_ROWS = 4096
"""The most rows that a function gets at a time."""


class TemporaryRows(FileRows):
    """Rows of float32 in an unnamed temporary file, which is removed with the last reader.

    Args:
        shape: `(n, width)`.

    Raises:
        EnvironmentFaultError: No room on the disk.
    """

    def __init__(self, shape: tuple[int, int]) -> None:
        size = 4 * shape[0] * shape[1]
        try:
            with tempfile.TemporaryFile(prefix="arachne-") as file:
                self._file = os.dup(file.fileno())
            weakref.finalize(self, os.close, self._file)
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(self._file, 0, max(1, size))
        except OSError as error:
            raise EnvironmentFaultError(
                f"no room for {size / 2**30:.1f} GiB of data in '{tempfile.gettempdir()}' ({error.strerror})"
            ) from error
        super().__init__(Stamp(Path(tempfile.gettempdir()), size, 0), 0, shape, np.float32)

    def write(self, rows: slice, values: Array) -> None:
        """Write some rows."""
        content = memoryview(np.ascontiguousarray(values, np.float32).reshape(-1).view(np.uint8).data)
        at = rows.start * self._row
        while len(content):
            done = os.pwrite(self._file, content, at)
            content, at = content[done:], at + done

    def describe(self, rows: Array) -> dict[str, Any]:
        raise DataError("what is kept in a temporary file of this process cannot be opened elsewhere")

    def _open(self) -> BinaryIO:
        return os.fdopen(os.dup(self._file), "rb", buffering=0)

    def _check(self, stream: BinaryIO) -> None:
        """Do nothing: no other process can write to the file."""


class RowBuffer:
    """A float32 array `(n, width)` that is filled piece by piece, in memory or in a temporary file.

    Args:
        n: Rows.
        width: Columns.
        spill: Whether a large one goes to a file.
        most: The most bytes in memory; `SPILL_ABOVE_BYTES` when None.
    """

    def __init__(self, n: int, width: int, *, spill: bool, most: int | None = None) -> None:
        large = 4 * n * width > (SPILL_ABOVE_BYTES if most is None else most)
        self._in_file = TemporaryRows((n, width)) if spill and large else None
        self._in_memory: Array = np.empty((0 if self._in_file else n, width), np.float32)

    def __setitem__(self, rows: slice, values: Array) -> None:
        if self._in_file is None:
            self._in_memory[rows] = values
        else:
            self._in_file.write(rows, values)

    @property
    def array(self) -> Array:
        """The array, lazy if it is in a file."""
        return self._in_memory if self._in_file is None else as_array(LazyArray(self._in_file))


def map_rows(array: Array, make: Callable[[Array], Array]) -> Array:
    """Apply a function to the rows of an array, float32 `(n, width)`; the result for a lazy array is written to a file.

    Rows that are read again and again then lie close together, without unused columns.
    """
    if not is_lazy(array):
        return make(array)
    width = make(np.zeros((0, *array.shape[1:]), array.dtype)).shape[1]
    found = RowBuffer(len(array), width, spill=True, most=SPILL_COLUMNS_ABOVE_BYTES)
    for rows in blocks(array, BATCH_ROWS):
        found[rows] = make(array[rows])
    return found.array
