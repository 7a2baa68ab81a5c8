"""HDF5 files as Keras writes them: check them before anything is read, and locate each weight."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import h5py
import numpy as np

from arachne.errors import ModelError, UnsafeModelError
from arachne.model.values import Array

FILTERS = (1, 2, 3, 4, 5, 6, 32000)
"""HDF5's own filters; for any other, HDF5 would load a library from this machine."""

MAX_GROWTH = 8
ALWAYS_ALLOWED_BYTES = 64 * 2**20
"""Unpacked data may have MAX_GROWTH times the size of the file, or ALWAYS_ALLOWED_BYTES if that is more."""


@dataclass(frozen=True)
class HDF5Location:
    """The location of a tensor in an HDF5 file.

    Attributes:
        path: Its path in the HDF5 file.
        shape: Its shape.
        dtype: Its dtype as NumPy has it, with its byte order.
        name: The name of the dtype; `bfloat16`, which NumPy lacks, is marked by an attribute.
        offset: The byte of the HDF5 file at which it starts; None if it is not contiguous.
    """

    path: str
    shape: tuple[int, ...]
    dtype: Any
    name: str
    offset: int | None


def locate_tensors(file: Any, name: str, size: int) -> dict[str, HDF5Location]:
    """Check an open HDF5 file and locate its tensors.

    Args:
        file: An `h5py.File` opened for reading.
        name: The name to use in messages.
        size: The file's size in bytes.

    Raises:
        UnsafeModelError: It reaches into other files, or grows out of proportion when it is read.
        ModelError: It is damaged.
    """
    try:
        found = {location.path: location for location in _walk(file, "", name, set())}
        total = sum(file[path].nbytes for path in found)
    except (OSError, KeyError, RuntimeError, ValueError, TypeError, OverflowError) as error:
        if isinstance(error, ModelError):
            raise
        raise ModelError(f"'{name}' holds weights that cannot be read: {error}") from error
    if total > max(ALWAYS_ALLOWED_BYTES, MAX_GROWTH * size):
        raise UnsafeModelError(f"'{name}' would grow from {size} to {total} bytes when it is read")
    return found


def read_tensor(file: Any, offset: int, location: HDF5Location) -> Array:
    """Read a contiguous tensor from an open file, as a fresh array of its stored dtype."""
    size = int(np.prod(location.shape)) * location.dtype.itemsize
    file.seek(offset)
    return np.frombuffer(bytearray(file.read(size)), location.dtype).reshape(location.shape)


def _walk(group: Any, path: str, name: str, seen: set[int]) -> Iterator[HDF5Location]:
    address = h5py.h5o.get_info(group.id).addr
    if address in seen:
        raise UnsafeModelError(f"'{name}' holds a group '{path}' that leads back to itself")
    seen.add(address)
    for key in group:
        inner = f"{path}/{key}" if path else key
        link = group.get(key, getlink=True)
        if not isinstance(link, h5py.HardLink):
            raise UnsafeModelError(f"'{name}' holds a link '{inner}' to something outside of it")
        found = group.get(key, getclass=True)
        if found is h5py.Group:
            yield from _walk(group[key], inner, name, seen)
        elif found is h5py.Dataset:
            yield _locate(group[key], inner, name)
        else:
            raise ModelError(f"'{name}' holds '{inner}', which is no tensor")


def _locate(dataset: Any, path: str, name: str) -> HDF5Location:
    if dataset.external or dataset.is_virtual:
        raise UnsafeModelError(f"'{name}' keeps the tensor '{path}' in another file")
    plist = dataset.id.get_create_plist()
    if any(plist.get_filter(number)[0] not in FILTERS for number in range(plist.get_nfilters())):
        raise UnsafeModelError(f"'{name}' packs the tensor '{path}' with a filter that is not HDF5's own")
    if dataset.dtype.kind not in "biufVS":
        raise ModelError(f"'{name}' holds '{path}', which is no tensor of numbers")
    stored = "bfloat16" if str(dataset.attrs.get("dtype", "")) == "bfloat16" else str(dataset.dtype.newbyteorder("="))
    return HDF5Location(path, tuple(dataset.shape), dataset.dtype, stored, dataset.id.get_offset())
