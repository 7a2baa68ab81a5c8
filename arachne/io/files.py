"""Files that are either wholly there or not there at all, and hashes of files.

A file is written under another name, forced to the disk and renamed, so that a crash or a full disk leaves what was
there before. Both folders are held open meanwhile: see `arachne.io.folder`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from arachne.errors import EnvironmentFaultError, ModelError
from arachne.io.expected import expected_at
from arachne.io.moving import put_file
from arachne.io.output_paths import allowed_mode, environment_faults
from arachne.io.working_folder import COPY, working_folder

CHUNK = 1 << 20


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
    with atomic_draft(Path(path), source) as temporary, temporary.open("wb") as stream:
        if callable(content):
            content(stream)
        else:
            stream.write(content)


def write_edited(
    source: Path,
    destination: Path,
    edits: Mapping[int, bytes | bytearray],
    finish: Callable[[BinaryIO], None] | None = None,
) -> None:
    """Write a copy of a file with other bytes at some offsets.

    Args:
        source: The file, which is never the destination.
        destination: Where the copy ends up; what was there is replaced.
        edits: The new bytes by where they begin.
        finish: Called with the edited copy, open for reading and writing.

    Raises:
        ModelError: The destination is the source itself.
        EnvironmentFaultError: The disk is full, the folder is missing or read-only.
    """
    with atomic_draft(destination, source) as temporary:
        shutil.copyfile(source, temporary)
        with temporary.open("r+b") as copy:
            for offset, data in edits.items():
                copy.seek(offset)
                copy.write(data)
            copy.flush()
            if finish is not None:
                finish(copy)


@contextlib.contextmanager
def atomic_draft(destination: Path, source: Path | None = None) -> Iterator[Path]:
    """An empty file beside the destination, with the same ending, that takes its place when the block ends well.

    Args:
        destination: Where it ends up; what was there is replaced.
        source: The model that is being copied, which is never the destination.

    Raises:
        ModelError: The destination is the source itself.
        EnvironmentFaultError: The disk is full, the folder is missing or read-only, or another file was put there
            meanwhile.
    """
    if source is not None and same_file(source, destination):
        raise ModelError(f"'{destination}' is the model itself, which is never overwritten; choose another name")
    name = destination.name  # frameworks go by the ending of the name they are given
    with environment_faults(destination), working_folder(destination.absolute(), wait=True) as work:
        found = expected_at(destination, work.parent)
        with work.make(COPY) as copy:
            os.close(copy.create(name))
            yield copy.path / name
            copy.check_reached()
            copy.sync_file(name, allowed_mode([] if source is None else [source]))
            work.check_unmoved()
            put_file(copy, name, work.parent, name, found=found)
            work.parent.sync()


def same_file(a: str | Path, b: str | Path) -> bool:
    """Whether two paths lead to one file, also through links; where there is no file yet, the paths are compared."""
    try:
        return os.path.samefile(a, b)
    except OSError:
        return os.path.realpath(a) == os.path.realpath(b)
