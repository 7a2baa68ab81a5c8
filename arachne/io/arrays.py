"""Named arrays and a JSON object in one npz file that is believed only after it was checked.

Arrays are stored as they are, not compressed, so a file can never grow beyond its own size in memory. The JSON object
is the first member, `about`, as bytes; it holds a hash of every array. The second, `mark`, is made of these bytes with
the key of the user who wrote the file: what others have made is not believed. No code in a file runs.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from arachne.errors import EnvironmentFaultError, InputError
from arachne.io.files import atomic_write
from arachne.io.npz import Array, open_zip, read_member
from arachne.io.own_key import fits_mark, key_path, make_mark, read_own_key
from arachne.io.reading import error_text, parse_json
from arachne.text import size_text

ABOUT, MARK = "about", "mark"
STORED_DTYPES = "biuf"
"""Truth values and numbers: what an array in such a file holds."""

MAX_ABOUT_BYTES = 32 << 20
"""A longer object is none that a run has written, and is not read."""

MAX_MARK_BYTES = 1 << 10
"""A mark has 32 bytes, and a header."""

NOT_MARKED = "it does not carry the mark of your key ('{key}'), so somebody else may have made it"

MAX_ARRAY_BYTES = 400 << 20
"""Bytes that all arrays together may take, unless the reader gives another limit."""


def write_arrays(path: Path, arrays: Mapping[str, Array], about: Mapping[str, Any]) -> None:
    """Write a file, whole or not at all; without a mark, and so of no use later, where this user can have no key.

    Raises:
        EnvironmentFaultError: The disk is full, the folder is missing or read-only.
    """
    written = {**about, "arrays": {name: _digest(array) for name, array in arrays.items()}}
    text = json.dumps(written, default=_plain).encode()
    first = {ABOUT: np.frombuffer(text, np.uint8)}
    with contextlib.suppress(EnvironmentFaultError):
        first[MARK] = np.frombuffer(make_mark(read_own_key(), text), np.uint8)

    def write(stream: BinaryIO) -> None:
        np.savez(stream, allow_pickle=False, **first, **arrays)

    atomic_write(path, write)


def read_arrays(path: Path, schema: str, max_bytes: int = MAX_ARRAY_BYTES) -> tuple[dict[str, Array], dict[str, Any]]:
    """Read the arrays and the object that `write_arrays` wrote.

    Args:
        path: The file; a link is not followed.
        schema: What its object must have as `schema`.
        max_bytes: More than this is not read.

    Raises:
        InputError: It is missing, damaged, too large, something else, or not written by this user.
    """
    if not os.path.lexists(path):
        raise InputError(f"'{path}' cannot be used: there is no such file")
    try:
        with open_zip(path, "checkpoint", InputError, links=False) as (stream, archive):
            members = _members(archive, os.fstat(stream.fileno()).st_size, max_bytes)
            text = _marked_text(archive, members)
            about = _about(text, members, schema)
            digests = about["arrays"]
            arrays = {name: _array(archive, members[name]) for name in digests}
    except (InputError, MemoryError):
        raise
    except Exception as error:  # zipfile and NumPy raise what they like on bytes that nobody should have written
        raise InputError(f"'{path}' cannot be used: {error_text(error)}") from error
    for name, array in arrays.items():
        if _digest(array) != digests[name]:
            raise InputError(f"'{path}' cannot be used: its array '{name}' is damaged")
    return arrays, about


def _members(archive: zipfile.ZipFile, size: int, max_bytes: int) -> dict[str, zipfile.ZipInfo]:
    """The members by their names, once it is clear that reading them takes no more memory than the file has bytes."""
    infos = archive.infolist()
    if any(info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1 for info in infos):
        raise ValueError("its members are packed or encrypted")
    total = sum(info.file_size for info in infos)
    if total > size:
        raise ValueError("its members are larger than the file")
    if total > max_bytes:
        raise ValueError(f"its arrays take {size_text(total)}, expected at most {size_text(max_bytes)}")
    if any(not info.filename.endswith(".npy") for info in infos):
        raise ValueError("it holds something else than arrays")
    members = {info.filename.removesuffix(".npy"): info for info in infos}
    if len(members) != len(infos) or next(iter(members), None) != ABOUT:
        raise ValueError("its arrays are not those it tells of")
    return members


def _marked_text(archive: zipfile.ZipFile, members: Mapping[str, zipfile.ZipInfo]) -> bytes:
    """The object as bytes, once their mark shows that this user has written them."""
    if members[ABOUT].file_size > MAX_ABOUT_BYTES:
        raise ValueError(f"what it tells of itself takes more than {size_text(MAX_ABOUT_BYTES)}")
    if MARK not in members or members[MARK].file_size > MAX_MARK_BYTES:
        raise ValueError(NOT_MARKED.format(key=key_path()))
    text, mark = (_array(archive, members[name]).tobytes() for name in (ABOUT, MARK))
    if not fits_mark(read_own_key(), text, mark):
        raise ValueError(NOT_MARKED.format(key=key_path()))
    return text


def _about(text: bytes, members: Mapping[str, zipfile.ZipInfo], schema: str) -> dict[str, Any]:
    """The object, with the digests of all arrays in it."""
    about = parse_json(text, finite=False, bits=128)
    if not isinstance(about, dict) or about.get("schema") != schema:
        raise ValueError(f"it is no '{schema}'")
    digests = about.get("arrays")
    if not isinstance(digests, dict) or [ABOUT, MARK, *digests] != list(members):
        raise ValueError("its arrays are not those it tells of")
    return about


def _array(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Array:
    array = read_member(archive, info)
    if array.dtype.kind not in STORED_DTYPES:
        raise ValueError("an array in it is not what it says")
    return array


def _plain(value: Any) -> Any:
    """A NumPy number as JSON has it."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{value!r} cannot be written as JSON")


def _digest(array: Array) -> str:
    digest = hashlib.sha256(f"{array.dtype.str}\0{array.shape}\0".encode())
    digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data if array.size else b"")
    return digest.hexdigest()
