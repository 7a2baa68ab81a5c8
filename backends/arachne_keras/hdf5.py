"""HDF5 files as Keras writes them: checked before anything is read from them, and where each weight lies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import h5py
import numpy as np

from arachne.errors import ModelError, UnsafeModelError
from arachne.values import Array

FILTERS = (1, 2, 3, 4, 5, 6, 32000)
"""HDF5's own filters; any other would be looked for in a library on this machine."""

LARGEST_GROWTH = 8
SMALL = 64 * 2**20
"""Unpacked data may have LARGEST_GROWTH times the size of the file, or SMALL bytes if that is more."""


@dataclass(frozen=True)
class Place:
    """Where a tensor lies.

    Attributes:
        path: Its path in the HDF5 file.
        shape: Its shape.
        dtype: Its dtype as NumPy has it, with its byte order.
        name: The name of the dtype; `bfloat16`, which NumPy lacks, is marked by an attribute.
        offset: The byte of the HDF5 file at which it starts; None where it is stored in pieces.
    """

    path: str
    shape: tuple[int, ...]
    dtype: Any
    name: str
    offset: int | None


def places(file: Any, name: str, size: int) -> dict[str, Place]:
    """Check an open HDF5 file, and tell where its tensors lie.

    Args:
        file: An `h5py.File` opened for reading.
        name: The name to use in messages.
        size: The file's size in bytes.

    Raises:
        UnsafeModelError: It reaches into other files, or grows out of proportion when it is read.
        ModelError: It is damaged.
    """
    try:
        found = {place.path: place for place in _walk(file, "", name, set())}
        total = sum(file[path].nbytes for path in found)
    except (OSError, KeyError, RuntimeError, ValueError, TypeError) as error:
        if isinstance(error, ModelError):
            raise
        raise ModelError(f"'{name}' holds weights that cannot be read: {error}") from error
    if total > max(SMALL, LARGEST_GROWTH * size):
        raise UnsafeModelError(f"'{name}' would grow from {size} to {total} bytes when it is read")
    return found


def read_place(file: Any, offset: int, place: Place) -> Array:
    """A tensor that lies in one piece, out of an open file, as a fresh array of its stored dtype."""
    size = int(np.prod(place.shape)) * place.dtype.itemsize
    file.seek(offset)
    return np.frombuffer(bytearray(file.read(size)), place.dtype).reshape(place.shape)


def _walk(group: Any, path: str, name: str, seen: set[int]) -> Iterator[Place]:
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
            yield _place(group[key], inner, name)
        else:
            raise ModelError(f"'{name}' holds '{inner}', which is no tensor")


def _place(dataset: Any, path: str, name: str) -> Place:
    if dataset.external or dataset.is_virtual:
        raise UnsafeModelError(f"'{name}' keeps the tensor '{path}' in another file")
    plist = dataset.id.get_create_plist()
    if any(plist.get_filter(number)[0] not in FILTERS for number in range(plist.get_nfilters())):
        raise UnsafeModelError(f"'{name}' packs the tensor '{path}' with a filter that is not HDF5's own")
    if dataset.dtype.kind not in "biufVS":
        raise ModelError(f"'{name}' holds '{path}', which is no tensor of numbers")
    stored = "bfloat16" if str(dataset.attrs.get("dtype", "")) == "bfloat16" else str(dataset.dtype.newbyteorder("="))
    return Place(path, tuple(dataset.shape), dataset.dtype, stored, dataset.id.get_offset())
