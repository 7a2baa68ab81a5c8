"""The hidden folder beside an output in which the output is made: `.NAME.arachne`, held by one run at a time.

Everything unfinished lies in it, under names that say what it is. The lock is the system's: it goes with the process
that holds it, however that ends. What a killed run has left behind is found by the next one that writes to the same
place, and removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from arachne.errors import EnvironmentFaultError

LOCK = ".arachne-lock"
HIDDEN = ".arachne"
"""How the name of a working folder ends; it begins with a dot."""

LONGEST = 200
"""Bytes of a name that go into the hidden folder's; file systems take 255 at most."""


def hidden_beside(destination: Path) -> Path:
    """The working folder of a file or folder that is to be written."""
    name = os.fsencode(destination.name)
    if len(name) <= LONGEST:
        return destination.with_name(f".{destination.name}{HIDDEN}")
    return destination.with_name(f".{hashlib.sha256(name).hexdigest()}{HIDDEN}")


@contextlib.contextmanager
def working_folder(
    destination: Path,
    *,
    wait: bool = False,
    kept: tuple[str, ...] = (),
    recover: Callable[[Path], None] | None = None,
) -> Iterator[Path]:
    """The working folder of an output, locked, and gone when the block ends.

    Args:
        destination: The file or folder that is being made, in a folder that exists.
        wait: Whether to wait for a run that holds it, instead of giving up.
        kept: Names in it that another run may find again: they are neither cleared at the start nor removed at the end,
            and the folder stays as long as one of them is there.
        recover: Called with the folder as an earlier run has left it, before it is cleared.

    Raises:
        EnvironmentFaultError: Another run holds it.
        OSError: It cannot be made.
    """
    folder = hidden_beside(destination)
    handle = _locked(folder, destination, wait=wait)
    try:
        if recover is not None:
            recover(folder)
        clear(folder, kept)
        yield folder
    finally:
        with contextlib.suppress(OSError):  # what stays is removed by the next run
            _leave(folder, kept)
        os.close(handle)


def _leave(folder: Path, kept: tuple[str, ...]) -> None:
    clear(folder, kept)
    if not any(os.path.lexists(folder / name) for name in kept):
        # Whoever waits for this very file finds that it has gone, and begins anew.
        (folder / LOCK).unlink(missing_ok=True)
        folder.rmdir()


def clear(folder: Path, kept: tuple[str, ...] = ()) -> None:
    """Remove what a working folder holds, apart from its lock and what is to be kept; links are not followed."""
    for path in folder.iterdir():
        if path.name != LOCK and path.name not in kept:
            remove(path)


def remove(path: Path) -> None:
    """Remove a file, a link or a whole folder; nothing behind a link is touched."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def sync_file(path: Path) -> None:
    """Force a file's bytes to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _locked(folder: Path, destination: Path, *, wait: bool) -> int:
    """The open lock of a working folder, which is made if need be."""
    while True:
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        try:
            if not stat.S_ISDIR(folder.lstat().st_mode):
                raise EnvironmentFaultError(f"'{folder}' is in the way: '{destination.name}' is made in a folder there")
            handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except FileNotFoundError:  # the run that held it has just ended, and removed the folder
            continue
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            if _still(folder / LOCK, handle):
                return handle
        except BlockingIOError as error:
            os.close(handle)
            raise EnvironmentFaultError(
                f"another run is writing to '{destination}'; wait until it has ended"
            ) from error
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _still(path: Path, handle: int) -> bool:
    """Whether an open file is still the one under its name."""
    try:
        return os.path.samestat(path.lstat(), os.fstat(handle))
    except FileNotFoundError:
        return False
