"""Numbers about many lazy inputs in a temporary file: what is made of inputs that do not fit is not held either."""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from arachne.data.pieces import FileRows, Stamp
from arachne.errors import DataError, EnvironmentFaultError
from arachne.lazy import LazyArray, as_array, is_lazy
from arachne.values import Array, batches

SMALL = 64 << 20
"""Up to this many bytes are held all the same."""

FEW = 16 << 20
"""The same of the columns that one search needs, of which there are several at a time."""

AT_ONCE, ROOM = 4096, 16 << 20
"""Rows that a function is given at a time, at most, and how many bytes of them."""


class Spilled(FileRows):
    """Rows of float32 in a file without a name, which is gone when nobody reads it any more.

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
        """Fill some rows."""
        content = memoryview(np.ascontiguousarray(values, np.float32).reshape(-1).view(np.uint8).data)
        at = rows.start * self._row
        while len(content):
            done = os.pwrite(self._file, content, at)
            content, at = content[done:], at + done

    def describe(self, rows: Array) -> dict[str, Any]:
        raise DataError("what is kept in a temporary file of this process cannot be opened elsewhere")

    def _opened(self) -> BinaryIO:
        return os.fdopen(os.dup(self._file), "rb", buffering=0)

    def _check(self, stream: BinaryIO) -> None:
        """Nobody else can write to it."""


class Filled:
    """A float32 array `(n, width)` that is filled in pieces: in memory, or in a temporary file.

    Args:
        n: Rows.
        width: Columns.
        spill: Whether a large one goes to a file.
        most: What is large, in bytes; `SMALL` when None.
    """

    def __init__(self, n: int, width: int, *, spill: bool, most: int | None = None) -> None:
        large = 4 * n * width > (SMALL if most is None else most)
        self._spilled = Spilled((n, width)) if spill and large else None
        self._held: Array = np.empty((0 if self._spilled else n, width), np.float32)

    def __setitem__(self, rows: slice, values: Array) -> None:
        if self._spilled is None:
            self._held[rows] = values
        else:
            self._spilled.write(rows, values)

    @property
    def array(self) -> Array:
        """The array; a lazy one if it is in a file."""
        return self._held if self._spilled is None else as_array(LazyArray(self._spilled))


def each_row(array: Array, make: Callable[[Array], Array]) -> Array:
    """What a function that works row by row makes of an array, float32 `(n, width)`; of a lazy one in its own file.

    Rows that are searched again and again then lie close together, without the columns that nobody asks for.
    """
    if not is_lazy(array):
        return make(array)
    width = make(np.zeros((0, *array.shape[1:]), array.dtype)).shape[1]
    found = Filled(len(array), width, spill=True, most=FEW)
    for rows in batches(len(array), max(1, min(AT_ONCE, len(array) * ROOM // max(1, array.nbytes)))):
        found[rows] = make(array[rows])
    return found.array
