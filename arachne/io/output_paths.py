"""Output paths: free space, permissions, parent folders, and errors of the operating system."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, TextIO

from arachne.errors import EnvironmentFaultError
from arachne.io.folder import Folder, plain_path


def check_room(folder: Path, wanted: int) -> None:
    """Refuse to begin if the disk has not enough free space.

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
def folders_above(path: Path) -> Iterator[None]:
    """Make the folders a path lies in, and take those away again in which nothing was put."""
    missing = [parent for parent in path.parents if not parent.exists()]
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        for parent in missing:
            with contextlib.suppress(OSError):
                parent.rmdir()


@contextlib.contextmanager
def environment_faults(path: Path) -> Iterator[None]:
    """Turn errors of the operating system while `path` is written into one sentence."""
    try:
        yield
    except OSError as error:
        raise EnvironmentFaultError(f"cannot write '{plain_path(path)}': {error.strerror or error}") from error


def make_folder(path: Path) -> None:
    """Make a folder and those above it, unless it is there; a link in its place is refused.

    Raises:
        OSError: It cannot be made, or something else is there.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with Folder.open(path.parent) as parent:
        parent.enter_or_make(path.name).close()


def make_private_folder(path: Path) -> None:
    """Make a folder for its owner only, and those above it like any others, unless it is there.

    Raises:
        OSError: It cannot be made, or something else is there.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with Folder.open(path.parent) as parent:
        with contextlib.suppress(FileExistsError):
            parent.make(path.name).close()
        parent.enter(path.name).close()


def touch(path: Path) -> None:
    """Set the time of change of a file to now; a link is not followed."""
    os.utime(path, follow_symlinks=False)


def remove(path: Path) -> None:
    """Remove a file, a link or a whole folder; nothing behind a link is touched."""
    with Folder.open(path.parent) as parent:
        parent.remove(path.name)


def remove_from(folder: Path, names: Iterable[str]) -> None:
    """Remove some names from a folder; a folder that is a link is left alone.

    Raises:
        OSError: The folder is a link, or the system refuses.
    """
    if not os.path.lexists(folder):
        return
    with Folder.open(folder.parent) as parent, parent.enter(folder.name) as held:
        for name in names:
            held.remove(name)


def remove_if_empty(path: Path) -> None:
    """Remove a folder in which nothing is left."""
    with contextlib.suppress(OSError):
        path.rmdir()


def create_file(path: Path) -> BinaryIO:
    """Make a file under a name that nothing has yet, and open it for writing."""
    with Folder.open(path.parent) as parent:
        return os.fdopen(parent.create(path.name, 0o666), "wb")


def open_log(path: Path) -> TextIO:
    """Open a file that lines are added to; a link, also a hard one, is refused.

    Raises:
        EnvironmentFaultError: The file has another name too, so that lines would go into something else.
    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    with Folder.open(path.absolute().parent) as parent:
        handle = os.open(path.name, flags, 0o666, dir_fd=parent.handle)
    if os.fstat(handle).st_nlink > 1:
        os.close(handle)
        raise EnvironmentFaultError(f"'{path}' is a hard link to a file of another name; choose another log file")
    return os.fdopen(handle, "a", encoding="utf-8")


def umask() -> int:
    """The permissions new files go without; reading them means setting them for a moment."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
