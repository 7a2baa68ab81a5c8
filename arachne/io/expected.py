"""Remembers the files and folders at the paths of a command's outputs when it begins.

Files that come later are kept. A folder that takes the place of the one that was checked gets nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from arachne.errors import EnvironmentFaultError
from arachne.io.folder import Folder, Identity, identity

_seen: ContextVar[dict[Path, Identity | None] | None] = ContextVar("seen", default=None)
_folders: ContextVar[dict[Path, Identity] | None] = ContextVar("folders", default=None)


@contextmanager
def expecting(outputs: Iterable[Path]) -> Iterator[None]:
    """Remember, for the length of the block, the files that lie at these paths now, and their folders."""
    paths = list(outputs)
    files = _seen.set({path.absolute(): _identity_of(path) for path in paths})
    folders = _folders.set(_folders_of(paths))
    try:
        yield
    finally:
        _seen.reset(files)
        _folders.reset(folders)


def check_folder(path: Path, opened: Folder) -> None:
    """Refuse a folder that has taken the place of the one the command found when it began.

    Args:
        path: What it was opened by.
        opened: The folder.

    Raises:
        EnvironmentFaultError: It is another one.
    """
    before = (_folders.get() or {}).get(path)
    if before is not None and before != opened.identity:
        raise EnvironmentFaultError(
            f"'{path}' was moved or replaced while the output was being made; nothing was written"
        )


def expected_at(destination: Path, parent: Folder) -> Identity | None:
    """Say which file an output may replace; None where nothing may be there.

    Args:
        destination: The output.
        parent: The folder it goes to, open.
    """
    seen = _seen.get() or {}
    path = destination.absolute()
    return seen.pop(path) if path in seen else parent.identity_of(path.name)


def _folders_of(outputs: Iterable[Path]) -> dict[Path, Identity]:
    """Folders that are outputs or contain them, by the names under which they may be opened."""
    found: dict[Path, Identity] = {}
    for output in outputs:
        for folder in (output, output.absolute().parent):
            if folder.is_dir():
                found |= dict.fromkeys((folder.absolute(), folder.resolve()), identity(os.stat(folder)))
    return found


def _identity_of(path: Path) -> Identity | None:
    try:
        return identity(os.lstat(path))
    except OSError:
        return None
