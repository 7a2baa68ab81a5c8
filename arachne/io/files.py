"""Hashes of files, and the common names of `arachne.io` for reading and writing them."""

from __future__ import annotations

import hashlib
from pathlib import Path

from arachne.errors import EnvironmentFaultError
from arachne.io.atomic import atomic_draft, atomic_write, same_file
from arachne.io.output_paths import check_room, environment_faults
from arachne.io.readers import MAX_OBJECT_BYTES as LARGEST_OBJECT
from arachne.io.readers import read_object

CHUNK = 1 << 20

__all__ = [
    "CHUNK",
    "LARGEST_OBJECT",
    "atomic_draft",
    "atomic_write",
    "check_room",
    "environment_faults",
    "read_object",
    "same_file",
    "sha256_of",
]  # fmt: skip


def sha256_of(path: str | Path) -> str:
    """The sha256 of a file's bytes, in hex.

    Raises:
        EnvironmentFaultError: The file cannot be read.
    """
    try:
        with open(path, "rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise EnvironmentFaultError(f"cannot read '{path}': {error.strerror or error}") from error
