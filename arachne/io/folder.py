"""An open folder: every operation happens in this very folder, even if its path leads elsewhere meanwhile.

Frameworks want a path to write to. `Folder.path` gives one that leads through the descriptor (`/proc/self/fd/N`), so
that a folder which is moved away or swapped for a link is still the one that is written to. Where the system has no
such paths, it is the folder's own.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from io import BufferedReader
from pathlib import Path
from types import TracebackType

HELD = "/proc/self/fd/"
"""How a path begins that leads through an open folder."""

Identity = tuple[int, int]
"""Device and inode: which file or folder this is, under whatever name."""


def identity(found: os.stat_result) -> Identity:
    """Say which file or folder a description is of."""
    return found.st_dev, found.st_ino


def plain_path(path: Path) -> Path:
    """Give the path that people know for one that leads through an open folder."""
    return Path(os.path.realpath(path)) if str(path).startswith(HELD) else path


class Folder:
    """A folder held by its descriptor; use as a context manager, or close it.

    Args:
        handle: The descriptor, which the folder closes.
        named: What the folder is called in messages.
        held: Whether it was reached through another open folder, so that its name does not matter.
    """

    def __init__(self, handle: int, named: Path, *, held: bool = False) -> None:
        self.handle = handle
        self.named = named
        self.held = held
        self.identity = identity(os.fstat(handle))

    @classmethod
    def open(cls, path: Path) -> Folder:
        """Open a folder that the user named; links to it are followed, once and for all."""
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        return cls(handle, plain_path(path), held=str(path).startswith(HELD))

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the folder."""
        os.close(self.handle)

    @property
    def path(self) -> Path:
        """A path for libraries that take nothing else."""
        held = Path(f"{HELD}{self.handle}")
        try:
            return held if identity(os.stat(held)) == self.identity else self.named
        except OSError:
            return self.named

    def check_reached(self) -> None:
        """Refuse the files written to `path` if it leads to another folder by now; a path through `/proc` cannot.

        Raises:
            OSError: It does.
        """
        if identity(os.stat(self.path)) != self.identity:
            raise OSError(errno.ESTALE, "the folder it was made in was moved or replaced", str(self.named))

    def enter(self, name: str) -> Folder:
        """Open a folder in this one; a link is refused."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
        return Folder(os.open(name, flags, dir_fd=self.handle), self.named / name, held=True)

    def make(self, name: str) -> Folder:
        """Make a folder in this one, for its owner only, and open it."""
        os.mkdir(name, 0o700, dir_fd=self.handle)
        return self.enter(name)

    def enter_or_make(self, name: str) -> Folder:
        """Open a folder in this one, which is made like any other if it is not there; a link is refused."""
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, dir_fd=self.handle)
        return self.enter(name)

    def create(self, name: str, mode: int = 0o600) -> int:
        """Make a file in this folder; the descriptor it is open under for writing."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        return os.open(name, flags, mode, dir_fd=self.handle)

    def write_file(self, name: str, content: bytes, mode: int) -> None:
        """Make a file in this folder with this content, and force it to the disk."""
        with os.fdopen(self.create(name), "wb") as stream:
            stream.write(content)
        self.sync_file(name, mode)

    def open_file(self, name: str) -> BufferedReader:
        """Open an ordinary file of this folder for reading.

        Raises:
            OSError: It is a link, a pipe, a device or a folder.
        """
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        handle = os.open(name, flags, dir_fd=self.handle)
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise OSError(errno.EINVAL, "it is no ordinary file", name)
        return os.fdopen(handle, "rb")

    def stat(self, name: str) -> os.stat_result | None:
        """The `stat` of a name, links not followed; None if nothing is there."""
        try:
            return os.stat(name, dir_fd=self.handle, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def identity_of(self, name: str) -> Identity | None:
        """Say which file, link or folder lies under a name; None where none does."""
        found = self.stat(name)
        return None if found is None else identity(found)

    def names(self) -> list[str]:
        """List the names in the folder."""
        return sorted(os.listdir(self.handle))

    def sync(self) -> None:
        """Force renames in this folder to the disk, if the system allows it."""
        try:
            os.fsync(self.handle)
        except OSError:
            return

    def sync_file(self, name: str, mode: int | None = None) -> None:
        """Set a file's permissions and force its bytes to the disk.

        Raises:
            OSError: It is no ordinary file, or has a second name that leads to it from elsewhere.
        """
        with self.open_file(name) as stream:
            if os.fstat(stream.fileno()).st_nlink > 1:
                raise OSError(errno.EMLINK, "it is a hard link to another file", name)
            if mode is not None:
                os.fchmod(stream.fileno(), mode)
            os.fsync(stream.fileno())

    def empty(self) -> None:
        """Remove everything in this folder; links are removed, not followed."""
        for _, folders, files, handle in os.fwalk(".", topdown=False, onerror=_raise, dir_fd=self.handle):
            for name in files:
                os.unlink(name, dir_fd=handle)
            for name in folders:
                try:
                    os.rmdir(name, dir_fd=handle)
                except NotADirectoryError:
                    os.unlink(name, dir_fd=handle)

    def remove_empty(self, name: str) -> None:
        """Remove a folder in which nothing is left; one that holds something stays."""
        with contextlib.suppress(OSError):
            os.rmdir(name, dir_fd=self.handle)

    def settle(self, allowed: int) -> None:
        """Take away permissions that are not allowed from everything in here, and force it to the disk."""
        for top, _, files, handle in os.fwalk(".", topdown=False, onerror=_raise, dir_fd=self.handle):
            with Folder(os.dup(handle), self.named / top, held=True) as folder:
                for name in files:
                    found = folder.stat(name)
                    folder.sync_file(name, 0o600 if found is None else stat.S_IMODE(found.st_mode) & allowed)
                os.fchmod(handle, allowed | (allowed & 0o444) >> 2)  # who may read may also look into it
                folder.sync()

    def remove(self, name: str, made: Identity | None = None) -> None:
        """Remove a file, a link or a whole folder; nothing behind a link is touched.

        Args:
            name: Its name.
            made: Which one it must be; another one under the name stays.
        """
        found = self.stat(name)
        if found is None or (made is not None and identity(found) != made):
            return
        if not stat.S_ISDIR(found.st_mode):
            os.unlink(name, dir_fd=self.handle)
            return
        with self.enter(name) as folder:
            if folder.identity != identity(found):
                return
            folder.empty()
        os.rmdir(name, dir_fd=self.handle)


def _raise(error: OSError) -> None:
    raise error
