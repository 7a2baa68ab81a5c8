"""The hidden folder beside an output in which the output is made: `.NAME.arachne`, held by one run at a time.

Everything unfinished lies in it, under names that say what it is. It is used through its descriptor from the first look
on, so that a link or another folder that takes its name meanwhile is neither written to nor cleared. The lock is the
system's: it goes with the process that holds it, however that ends. What a killed run has left behind is found by the
next one that writes to the same path, and removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from arachne.errors import EnvironmentFaultError
from arachne.io.expected import check_folder
from arachne.io.folder import Folder, Identity, identity, plain_path
from arachne.io.moving import ASIDE

LOCK = ".arachne-lock"
HIDDEN = ".arachne"
"""How the name of a working folder ends; it begins with a dot."""

COPY, DRAFT, CHECKPOINTS = "copy", "result", "checkpoints"
MADE_BY_RUNS = (COPY, DRAFT, ASIDE, CHECKPOINTS)
"""All names that a run gives to anything in a working folder, apart from the lock."""

MAX_NAME_BYTES = 200
"""Bytes of a name that go into the hidden folder's; file systems take 255 at most."""


@dataclass
class WorkingFolder:
    """A working folder and the folder it lies in, both open.

    Attributes:
        parent: The folder of the output.
        folder: The working folder.
        made: What this run has made in it, by name: nothing else is removed at its end.
    """

    parent: Folder
    folder: Folder
    made: dict[str, Identity] = field(default_factory=dict)

    @contextlib.contextmanager
    def make(self, name: str) -> Iterator[Folder]:
        """Make a folder in it, held open for the block."""
        with self.folder.make(name) as made:
            self.made[name] = made.identity
            yield made

    def check_unmoved(self) -> None:
        """Refuse to continue when the folder of the output was moved or replaced.

        Raises:
            EnvironmentFaultError: It was moved, or something else was put in its place.
        """
        if self.parent.held:
            return
        try:
            unchanged = identity(os.stat(self.parent.named)) == self.parent.identity
        except OSError:
            unchanged = False
        if not unchanged:
            raise EnvironmentFaultError(
                f"'{self.parent.named}' was moved or replaced while the output was being made; nothing was written"
            )


def hidden_beside(destination: Path) -> Path:
    """The working folder of a file or folder that is to be written."""
    name = os.fsencode(destination.name)
    if len(name) <= MAX_NAME_BYTES:
        return destination.with_name(f".{destination.name}{HIDDEN}")
    return destination.with_name(f".{hashlib.sha256(name).hexdigest()}{HIDDEN}")


@contextlib.contextmanager
def working_folder(
    destination: Path,
    *,
    wait: bool = False,
    kept: tuple[str, ...] = (),
    recover: Callable[[WorkingFolder], None] | None = None,
) -> Iterator[WorkingFolder]:
    """The working folder of an output, locked, and gone when the block ends.

    Args:
        destination: The file or folder that is being made, in a folder that exists.
        wait: Whether to wait for a run that holds it, instead of giving up.
        kept: Names in it that another run may find again: they are neither cleared at the start nor removed at the end,
            and the folder stays as long as one of them is there.
        recover: Called with the folder as an earlier run has left it, before it is cleared.

    Raises:
        EnvironmentFaultError: Another run holds it, or what lies there was made by none.
        OSError: It cannot be made.
    """
    with Folder.open(destination.parent) as parent:
        check_folder(destination.parent, parent)
        folder, lock = _lock(parent, destination, wait=wait)
        work = WorkingFolder(parent, folder)
        try:
            if recover is not None:
                recover(work)
            for name in set(MADE_BY_RUNS) - set(kept):
                folder.remove(name)
            yield work
        finally:
            with contextlib.suppress(OSError):  # what stays is removed by the next run
                _leave(work, kept, lock)
            os.close(lock)
            folder.close()


def _leave(work: WorkingFolder, kept: tuple[str, ...], lock: int) -> None:
    for name, made in work.made.items():
        if name not in kept:
            work.folder.remove(name, made)
    if work.folder.names() == [LOCK]:
        # Whoever waits for this very file finds that it has gone, and begins anew.
        work.folder.remove(LOCK, identity(os.fstat(lock)))
        if work.parent.identity_of(work.folder.named.name) == work.folder.identity:
            os.rmdir(work.folder.named.name, dir_fd=work.parent.handle)


def _lock(parent: Folder, destination: Path, *, wait: bool) -> tuple[Folder, int]:
    """Open the working folder, which is made if need be, and lock it."""
    while True:
        folder = _open(parent, hidden_beside(destination).name, destination)
        try:
            lock = os.open(LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600, dir_fd=folder.handle)
        except BaseException as error:
            folder.close()
            if isinstance(error, FileNotFoundError):  # the run that held it has just ended, and removed the folder
                continue
            raise
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            if folder.identity_of(LOCK) == identity(os.fstat(lock)):
                return folder, lock
        except BaseException as error:
            os.close(lock)
            folder.close()
            if isinstance(error, BlockingIOError):
                raise EnvironmentFaultError(
                    f"another run is writing to '{plain_path(destination)}'; wait until it has ended"
                ) from error
            raise
        os.close(lock)
        folder.close()


def _open(parent: Folder, name: str, destination: Path) -> Folder:
    """Open the working folder, which is new or from an earlier run of this user.

    Raises:
        EnvironmentFaultError: Something lies there that no run of this user has made.
    """
    while True:
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=parent.handle)
        try:
            folder = parent.enter(name)
        except FileNotFoundError:  # the run that held it has just ended, and removed it
            continue
        except OSError as error:
            raise _in_the_way(parent.named / name, destination) from error
        others = [other for other in folder.names() if other not in (LOCK, *MADE_BY_RUNS)]
        if os.fstat(folder.handle).st_uid == os.geteuid() and not others and _locked_before(folder):
            return folder
        folder.close()
        raise _in_the_way(parent.named / name / "".join(others[:1]), destination)


def _locked_before(folder: Folder) -> bool:
    """Whether a run has held this folder; one that has just been made is empty."""
    names = folder.names()
    return not names or LOCK in names


def _in_the_way(path: Path, destination: Path) -> EnvironmentFaultError:
    return EnvironmentFaultError(
        f"'{path}' is in the way: '{destination.name}' is made in a folder there, and no run of yours has put it there"
    )
