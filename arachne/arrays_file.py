"""Named arrays and a JSON object in one npz file that is believed only after it was checked.

Arrays are stored as they are, not compressed, so a file can never grow beyond its own size in memory. The JSON object
is the first member, `about`, as bytes; it holds a hash of every array. No code in a file runs.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from arachne.errors import InputError
from arachne.files import atomic_write
from arachne.values import Array

ABOUT = "about"
KINDS = "biuf"
"""Truth values and numbers: what an array in such a file holds."""

NOT_ZIP = (zipfile.BadZipFile, ValueError, EOFError, OSError, NotImplementedError, RuntimeError, KeyError, TypeError)
"""What reading a damaged archive can raise; `struct.error` is a ValueError's cousin and comes as `BadZipFile`."""


def write_arrays(path: Path, arrays: Mapping[str, Array], about: Mapping[str, Any]) -> None:
    """Write a file, whole or not at all.

    Raises:
        EnvironmentFaultError: The disk is full, the folder is missing or read-only.
    """
    told = {**about, "arrays": {name: _digest(array) for name, array in arrays.items()}}
    text = np.frombuffer(json.dumps(told, default=_plain).encode(), np.uint8)

    def write(stream: BinaryIO) -> None:
        np.savez(stream, allow_pickle=False, **{ABOUT: text}, **arrays)

    atomic_write(path, write)


def read_arrays(path: Path, schema: str) -> tuple[dict[str, Array], dict[str, Any]]:
    """What `write_arrays` wrote: the arrays, and the object.

    Args:
        path: The file.
        schema: What its object must have as `schema`.

    Raises:
        InputError: It is missing, damaged, or something else.
    """
    try:
        if not path.is_file():
            raise ValueError("there is no such file")
        with zipfile.ZipFile(path) as file:
            names = _members(file, path.stat().st_size)
            about = json.loads(_array(file.read(f"{ABOUT}.npy")).tobytes())
            if not isinstance(about, dict) or about.get("schema") != schema:
                raise ValueError(f"it is no '{schema}'")
            digests = about.get("arrays")
            if not isinstance(digests, dict) or [ABOUT, *digests] != names:
                raise ValueError("its arrays are not those it tells of")
            arrays = {name: _array(file.read(f"{name}.npy")) for name in digests}
    except (*NOT_ZIP, RecursionError) as error:
        raise InputError(f"'{path}' cannot be used: {error}") from error
    for name, array in arrays.items():
        if _digest(array) != digests[name]:
            raise InputError(f"'{path}' cannot be used: its array '{name}' is damaged")
    return arrays, about


def _members(file: zipfile.ZipFile, size: int) -> list[str]:
    """The names of the arrays, once it is clear that reading them takes no more memory than the file has bytes."""
    infos = file.infolist()
    if any(info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1 for info in infos):
        raise ValueError("its members are packed or encrypted")
    if sum(info.file_size for info in infos) > size:
        raise ValueError("its members are larger than the file")
    if any(not info.filename.endswith(".npy") for info in infos):
        raise ValueError("it holds something else than arrays")
    return [info.filename.removesuffix(".npy") for info in infos]


def _array(content: bytes) -> Array:
    stream = io.BytesIO(content)
    if np.lib.format.read_magic(stream) != (1, 0):
        raise ValueError("an array in it is of another version")
    shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
    if max(shape, default=0) > max(len(content), 1):
        raise ValueError("an array in it is longer than the file")
    if dtype.kind not in KINDS or math.prod(shape) * dtype.itemsize != len(content) - stream.tell():
        raise ValueError("an array in it is not what it says")
    return np.asarray(np.load(io.BytesIO(content), allow_pickle=False))


def _plain(value: Any) -> Any:
    """A NumPy number as JSON has it."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{value!r} cannot be written as JSON")


def _digest(array: Array) -> str:
    header = f"{array.dtype.str}\0{array.shape}\0".encode()
    return hashlib.sha256(header + np.ascontiguousarray(array).tobytes()).hexdigest()
