"""Move a finished file or folder into its place in one step, replacing only the file that was seen there before."""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import sys

from arachne.errors import EnvironmentFaultError
from arachne.io.folder import Folder, Identity, identity

UNSUPPORTED = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)
EXCHANGE = 2
NO_REPLACE = 4 if sys.platform == "darwin" else 1
ASIDE = "replaced"
"""The name, in the working folder, of an old output that was moved aside."""


def rename_with(flags: int, source: Folder, name: str, target: Folder, new: str) -> None:
    """Rename with the flags of `renameat2`.

    Raises:
        OSError: It failed, with one of `UNSUPPORTED` where the file system does not know such renames.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    call = getattr(libc, "renameat2", None) or getattr(libc, "renameatx_np", None)
    if call is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    if call(source.handle, os.fsencode(name), target.handle, os.fsencode(new), flags):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), str(target.named / new))


def put_new(source: Folder, name: str, target: Folder, new: str) -> None:
    """Move something to a path where nothing is.

    Raises:
        EnvironmentFaultError: Somebody has put something there meanwhile; it stays.
    """
    try:
        rename_with(NO_REPLACE, source, name, target, new)
    except FileExistsError as error:
        raise _appeared_error(target, new) from error
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise
        if target.stat(new) is not None:
            raise _appeared_error(target, new) from error
        os.rename(name, new, src_dir_fd=source.handle, dst_dir_fd=target.handle)


def exchange(source: Folder, name: str, target: Folder, new: str) -> str:
    """Let two things change places; where the system cannot do that at once, two renames do.

    Returns:
        The name in `source` of what lay in `target` before.
    """
    try:
        rename_with(EXCHANGE, source, name, target, new)
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise
        os.rename(new, ASIDE, src_dir_fd=target.handle, dst_dir_fd=source.handle)
        os.rename(name, new, src_dir_fd=source.handle, dst_dir_fd=target.handle)
        return ASIDE
    return name


def exchange_back(source: Folder, aside: str, target: Folder, new: str, name: str) -> None:
    """Undo an exchange that brought out something else than was expected."""
    if aside == name:
        rename_with(EXCHANGE, source, name, target, new)
    else:
        os.rename(new, name, src_dir_fd=target.handle, dst_dir_fd=source.handle)
        os.rename(aside, new, src_dir_fd=source.handle, dst_dir_fd=target.handle)


def put_file(source: Folder, name: str, target: Folder, new: str, *, found: Identity | None) -> None:
    """Move a finished file into its place; a file that it replaces is left in `source`.

    Args:
        source: The folder it was made in, which is emptied afterwards.
        name: Its name there.
        target: Where it goes.
        new: Its name there.
        found: What lay there when the work began; None for nothing.

    Raises:
        EnvironmentFaultError: Something else lies there by now; it stays.
        OSError: A folder lies there, or the system refuses.
    """
    before = target.stat(new)
    if before is None:
        put_new(source, name, target, new)
        return
    if stat.S_ISDIR(before.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), new)
    if identity(before) != found:
        raise _appeared_error(target, new)
    aside = exchange(source, name, target, new)
    if source.identity_of(aside) != found:
        exchange_back(source, aside, target, new, name)
        raise _appeared_error(target, new)


def _appeared_error(target: Folder, new: str) -> EnvironmentFaultError:
    return EnvironmentFaultError(
        f"'{target.named / new}' was put there while it was being made, and is not written over; nothing was written"
    )
