"""Arrays larger than memory: an array made from a memory-mapped one is memory-mapped too, in a temporary file."""

from __future__ import annotations

import os
import tempfile

import numpy as np
import numpy.typing as npt

from arachne.data.pieces import cast
from arachne.errors import EnvironmentFaultError
from arachne.lazy import LazyArray, as_array
from arachne.values import Array, batches

IN_MEMORY = 256 * 2**20
"""Up to this many bytes, the result is an ordinary array whatever it was made of."""

BATCH = 1024
"""Rows copied at once."""


def room(shape: tuple[int, ...], dtype: npt.DTypeLike, like: Array) -> Array:
    """An empty array to fill; a large one is memory-mapped where `like` is, in an unnamed temporary file.

    Raises:
        EnvironmentFaultError: No room on the disk.
    """
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    if not isinstance(like, np.memmap) or size <= IN_MEMORY:
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
    """The chosen rows of an array, copied; those of a lazy one stay unread."""
    if isinstance(array, LazyArray):
        return as_array(array.take(rows))
    if not isinstance(array, np.memmap):
        chosen: Array = array[rows]
        return chosen
    copy = room((len(rows), *array.shape[1:]), array.dtype, array)
    for batch in batches(len(rows), BATCH):
        copy[batch] = array[rows[batch]]
    return copy


def as_type(array: Array, dtype: npt.DTypeLike) -> Array:
    """The array in another dtype; numbers too large for it become infinite."""
    if isinstance(array, LazyArray):
        return cast(array, dtype)
    with np.errstate(over="ignore"):
        if not isinstance(array, np.memmap):
            return array.astype(dtype)
        copy = room(array.shape, dtype, array)
        for batch in batches(len(array), BATCH):
            copy[batch] = array[batch]
        return copy
