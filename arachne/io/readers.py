"""Files of a result folder, read as a stranger's: only ordinary ones, never through a link, never without a bound."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arachne.errors import InputError
from arachne.io.folder import Folder
from arachne.io.reading import error_text, parse_errors_as, parse_json, suggest_path

MAX_OBJECT_BYTES = 32 << 20
"""A longer JSON file is none that a repair has written, and is not read."""


@dataclass(frozen=True)
class Found:
    """Something in a folder that is no folder itself.

    Attributes:
        name: Its path from that folder, with slashes.
        stat: Its description, links not followed.
        sha256: Its hash; empty where it is no ordinary file, or no hash was asked for.
    """

    name: str
    stat: os.stat_result
    sha256: str = ""

    @property
    def ordinary(self) -> bool:
        """Whether it is a file, and no link, pipe or device."""
        return stat.S_ISREG(self.stat.st_mode)


def list_files(folder: Folder, *, hashed: bool = False) -> Iterator[Found]:
    """Everything in a folder and the folders in it that is no folder itself; links are listed and not followed."""
    for top, folders, files, handle in os.fwalk(".", dir_fd=folder.handle):
        here = Folder(os.dup(handle), folder.named / top, held=True)
        with here:
            for name in sorted([*files, *folders]):
                found = here.stat(name)
                if found is None or stat.S_ISDIR(found.st_mode):
                    continue
                path = os.path.normpath(os.path.join(top, name)).replace(os.sep, "/")
                digest = hash_file(here, name) if hashed and stat.S_ISREG(found.st_mode) else ""
                yield Found(path, found, digest)


def hash_file(folder: Folder, name: str) -> str:
    """The sha256 of an ordinary file, in hex.

    Raises:
        OSError: It cannot be read, or is a link.
    """
    with folder.open_file(name) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def check_no_link(path: Path, what: str) -> Path:
    """Refuse a file of a result folder that is a link, to wherever it leads.

    Raises:
        InputError: It is one.
    """
    if path.is_symlink():
        raise InputError(f"{what} '{path}' is a link, and links in a folder of results are not followed")
    return path


def read_own(path: Path, what: str, most: int = MAX_OBJECT_BYTES) -> bytes:
    """All bytes of a file that a run has put into a folder of results.

    Args:
        path: The file.
        what: What it should be, as the message calls it.
        most: More bytes than this are not read.

    Raises:
        InputError: There is none, it is a link or no ordinary file, or too large.
    """
    check_no_link(path, what)
    if not os.path.lexists(path.parent):
        raise InputError(f"folder '{path.parent}' does not exist{suggest_path(path.parent)}")
    if path.parent.is_file():
        raise InputError(
            f"'{path.parent}' is a file, expected a folder that a repair was saved to; did you mean "
            f"'{path.parent.parent}'?"
        )
    if not os.path.lexists(path):
        raise InputError(f"'{path.parent}' has no {path.name}; expected a folder that a repair was saved to")
    with (
        parse_errors_as(f"{what} '{path}'", InputError),
        Folder.open(path.parent) as folder,
        folder.open_file(path.name) as stream,
    ):
        size = os.fstat(stream.fileno()).st_size
        if size > most:
            raise InputError(f"'{path}' has {size:,} bytes, too many for a {what}")
        return stream.read(size)


def read_object(path: Path, what: str) -> dict[str, Any]:
    """The JSON object in a file of a repair's folder.

    Args:
        path: The file.
        what: What it is called in messages.

    Raises:
        InputError: There is no such file, or something else under its name.
    """
    content = read_own(path, what)
    try:
        found = parse_json(content)
    except ValueError as error:
        raise InputError(f"'{path}' is not JSON: {error_text(error)}") from error
    if not isinstance(found, dict):
        raise InputError(f"'{path}' holds no {what}")
    return found
