"""Files that are either wholly there or not there at all, what is read back from them, and whether two are one.

A file is written under another name, forced to the disk and renamed, so that a crash or a full disk leaves what was
there before.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from arachne.errors import EnvironmentFaultError, InputError, ModelError
from arachne.working_folder import sync_file, working_folder

CHUNK = 1 << 20

LARGEST_OBJECT = 64 << 20
"""A longer JSON file is none that a repair has written, and is not read."""


def atomic_write(path: str | Path, content: bytes | Callable[[BinaryIO], object]) -> None:
    """Write a file so that it appears whole or not at all.

    Args:
        path: Where it ends up; what was there is replaced.
        content: The bytes, or a function that writes them to the open file it is given.

    Raises:
        EnvironmentFaultError: The disk is full, the folder is missing or read-only.
    """
    with written(Path(path)) as temporary, temporary.open("wb") as stream:
        if callable(content):
            content(stream)
        else:
            stream.write(content)


@contextlib.contextmanager
def written(destination: Path, source: Path | None = None) -> Iterator[Path]:
    """An empty file beside the destination, with the same ending, that takes its place when the block ends well.

    Args:
        destination: Where it ends up; what was there is replaced.
        source: The model that is being copied, which is never the destination.

    Raises:
        ModelError: The destination is the source itself.
        EnvironmentFaultError: The disk is full, the folder is missing or read-only.
    """
    if source is not None and same_file(source, destination):
        raise ModelError(f"'{destination}' is the model itself, which is never overwritten; choose another name")
    with environment_faults(destination), working_folder(destination.absolute(), wait=True) as folder:
        temporary = folder / destination.name  # frameworks go by the ending of the name they are given
        temporary.touch(exist_ok=False)
        yield temporary
        temporary.chmod((0o666 & ~umask() & _mode(source)) | 0o600)
        sync_file(temporary)
        temporary.replace(destination)
        sync_folder(destination.parent)


def _mode(source: Path | None) -> int:
    """The permissions of what a file is copied from; nobody may read the copy who could not read that."""
    return 0o666 if source is None else source.stat().st_mode


@contextlib.contextmanager
def environment_faults(path: Path) -> Iterator[None]:
    """Turn what the operating system refuses while `path` is written into one sentence."""
    try:
        yield
    except OSError as error:
        raise EnvironmentFaultError(f"cannot write '{path}': {error.strerror or error}") from error


def sync_folder(folder: Path) -> None:
    """Force a rename in this folder to the disk, where the system allows it."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def read_object(path: Path, what: str) -> dict[str, Any]:
    """The JSON object in a file of a repair's folder.

    Args:
        path: The file.
        what: What it is called in messages.

    Raises:
        InputError: There is no such file, or something else under its name.
    """
    if not path.is_file():
        raise InputError(f"'{path.parent}' has no {path.name}; expected a folder that a repair was saved to")
    if path.stat().st_size > LARGEST_OBJECT:
        raise InputError(f"'{path}' has {path.stat().st_size:,} bytes, too many for a {what}")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"'{path}' is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise InputError(f"'{path}' holds no {what}")
    return found


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


def same_file(a: str | Path, b: str | Path) -> bool:
    """Whether two paths lead to one file, also through links; where there is no file yet, the paths are compared."""
    try:
        return os.path.samefile(a, b)
    except OSError:
        return os.path.realpath(a) == os.path.realpath(b)


def umask() -> int:
    """The permissions new files go without; reading them means setting them for a moment."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
