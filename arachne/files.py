"""Files that are either wholly there or not there at all, what is read back from them, and whether two are one.

A file is written under another name, forced to the disk and renamed, so that a crash or a full disk leaves what was
there before.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from arachne.errors import EnvironmentFaultError, InputError, ModelError
from arachne.reading import parse_json, read_bytes, told
from arachne.working_folder import sync_file, working_folder

CHUNK = 1 << 20

LARGEST_OBJECT = 32 << 20
"""A longer JSON file is none that a repair has written, and is not read."""


def atomic_write(
    path: str | Path, content: bytes | Callable[[BinaryIO], object], *, source: Path | None = None
) -> None:
    """Write a file so that it appears whole or not at all.

    Args:
        path: Where it ends up; what was there is replaced.
        content: The bytes, or a function that writes them to the open file it is given.
        source: The file they are a copy of, which is never the destination, and says who may read them.

    Raises:
        EnvironmentFaultError: The disk is full, the folder is missing or read-only.
    """
    with written(Path(path), source) as temporary, temporary.open("wb") as stream:
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
        temporary.chmod(allowed_mode([] if source is None else [source]))
        sync_file(temporary)
        temporary.replace(destination)
        sync_folder(destination.parent)


def check_room(folder: Path, wanted: int) -> None:
    """Refuse to begin what the disk has no room for.

    Raises:
        EnvironmentFaultError: There is too little.
    """
    free = shutil.disk_usage(folder).free
    if free < wanted:
        raise EnvironmentFaultError(
            f"'{folder}' has {free / 1e6:,.0f} MB of free space, expected {wanted / 1e6:,.0f} MB for the results"
        )


def allowed_mode(private: Iterable[Path]) -> int:
    """The permissions of copies and results: those of new files, and nobody's who cannot read all of these."""
    allowed = 0o666 & ~umask()
    for path in private:
        with contextlib.suppress(OSError):
            allowed &= path.stat().st_mode
    return allowed | 0o600


@contextlib.contextmanager
def folders_above(place: Path) -> Iterator[None]:
    """Make the folders a place lies in, and take those away again in which nothing was put."""
    missing = [parent for parent in place.parents if not parent.exists()]
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        for parent in missing:
            with contextlib.suppress(OSError):
                parent.rmdir()


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
    if not path.exists():
        raise InputError(f"'{path.parent}' has no {path.name}; expected a folder that a repair was saved to")
    content = read_bytes(path, what, LARGEST_OBJECT)
    try:
        found = parse_json(content)
    except ValueError as error:
        raise InputError(f"'{path}' is not JSON: {told(error)}") from error
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
