"""Memory-mapped arrays: a large array made from one is memory-mapped too, in a temporary file."""

from __future__ import annotations

import os
import tempfile

import numpy as np
import numpy.typing as npt

from arachne.data.lazy.row_reader import cast
from arachne.errors import EnvironmentFaultError
from arachne.model.lazy import HeldRows, LazyArray, as_array
from arachne.model.values import Array, blocks

MAX_IN_MEMORY_BYTES = 256 * 2**20
"""Up to this many bytes, the result is an ordinary array."""

MAX_COPIED_BYTES = 64 * 2**20
"""Chosen rows that take more stay where they are."""

COPY_BATCH = 1024
"""Rows copied at a time."""


def allocate_like(shape: tuple[int, ...], dtype: npt.DTypeLike, like: Array) -> Array:
    """Allocate an array; a large one is memory-mapped if `like` is, in an unnamed temporary file.

    Raises:
        EnvironmentFaultError: No room on the disk.
    """
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    if not isinstance(like, np.memmap) or size <= MAX_IN_MEMORY_BYTES:
        return np.empty(shape, dtype)
    try:
        with tempfile.TemporaryFile(prefix="arachne-") as file:
            # Reserve the blocks now: on a full disk, the first write to a mapped file would kill the process.
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)
            return np.memmap(file, dtype=dtype, mode="r+", shape=shape)
    except OSError as error:
        raise EnvironmentFaultError(
            f"no room for {size / 2**30:.1f} GiB of data in '{tempfile.gettempdir()}' ({error.strerror})"
        ) from error


def gather(array: Array, rows: Array) -> Array:
    """Choose rows of an array: few are copied, many become a view, and rows of a lazy array stay unread."""
    if isinstance(array, LazyArray):
        return as_array(array.take(rows))
    if len(rows) * (array.nbytes // max(1, len(array))) <= MAX_COPIED_BYTES:
        return np.asarray(array[rows])
    return as_array(LazyArray(HeldRows(array), rows=rows))


def as_type(array: Array, dtype: npt.DTypeLike) -> Array:
    """Convert an array to another dtype; numbers too large for it become infinite."""
    if isinstance(array, LazyArray):
        return cast(array, dtype)
    with np.errstate(over="ignore"):
        if not isinstance(array, np.memmap):
            return array.astype(dtype)
        copy = allocate_like(array.shape, dtype, array)
        for batch in blocks(copy, COPY_BATCH):
            copy[batch] = array[batch]
        return copy
