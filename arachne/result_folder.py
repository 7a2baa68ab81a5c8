"""A folder of results that changes as a whole or not at all.

It is made as `result` in the working folder beside it, forced to the disk, and put into its place by one rename, with a
manifest of what it holds. So there is the old result or the new one, whenever a run is stopped, and never some files of
each. What may be replaced is a folder that an earlier run has made and nobody has added to, and only on request.

    with result_folder("fix", replace=False) as folder:     # locked, and known to be writable, before any work
        ...                                                 # folder.checkpoints outlives a run that fails
        (folder.draft / "patch.json").write_text(...)
        folder.publish()
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from arachne.errors import UsageError
from arachne.files import allowed_mode, check_room, environment_faults, folders_above, sync_folder
from arachne.manifest import MANIFEST, files_in, read_manifest, write_manifest
from arachne.working_folder import hidden_beside, sync_file, working_folder

DRAFT, OLD, CHECKPOINTS = "result", "old", "checkpoints"
NOWHERE = -100
"""The system's word for "no folder": paths are as they are."""

EXCHANGE = 2


@dataclass(frozen=True)
class ResultFolder:
    """A folder that is being made.

    Attributes:
        named: Where it ends up, as the user wrote it.
        path: The same, links resolved.
        draft: Where its files are written meanwhile; empty at first.
        checkpoints: Where a run keeps what it can go on from. Not made yet; when it is there at the end of a run that
            published nothing, it stays for the next one.
        allowed: The permissions its files may have.
    """

    named: Path
    path: Path
    draft: Path
    checkpoints: Path
    allowed: int

    def publish(self) -> None:
        """Put what was written into its place, all of it at once; checkpoints are then done with.

        Raises:
            UsageError: Somebody has put other files there meanwhile.
            EnvironmentFaultError: The disk is full, or the place cannot be written.
        """
        with environment_faults(self.path):
            write_manifest(self.draft)
            _settle(self.draft, self.allowed)
            check_place(self.path, replace=True)
            if self.path.is_dir() and any(self.path.iterdir()):
                _exchange(self.draft, self.path)
            else:
                os.rename(self.draft, self.path)
            sync_folder(self.path.parent)
            if self.checkpoints.is_dir():
                shutil.rmtree(self.checkpoints)


@contextlib.contextmanager
def result_folder(
    path: str | Path,
    *,
    replace: bool = False,
    resume: bool = False,
    private: Iterable[Path] = (),
    room: int = 0,
) -> Iterator[ResultFolder]:
    """Hold a place for a folder of results, and leave it as it was unless `publish` is called.

    Args:
        path: Where the folder goes: nothing, an empty folder, or one that an earlier run has made.
        replace: Whether an earlier run's folder, and what an interrupted run has left, may be replaced.
        resume: Whether an interrupted run goes on.
        private: Files that the results tell something about: nobody who could not read them can read the results.
        room: How many bytes will be written, about.

    Raises:
        UsageError: Something is there that may not be replaced.
        EnvironmentFaultError: Another run writes there, or the place cannot be written, or has too little room.
    """
    place = Path(path).resolve()
    with contextlib.ExitStack() as stack:
        with environment_faults(Path(path)):
            check_place(Path(path), replace=True)  # before anything is made there, if only a folder above it
            stack.enter_context(folders_above(place))
            recover = partial(_recover, place=place)
            work = stack.enter_context(working_folder(place, kept=(CHECKPOINTS,), recover=recover))
            check_place(Path(path), replace=replace or (resume and (work / CHECKPOINTS).is_dir()))
            _check_interrupted(work / CHECKPOINTS, path, replace=replace, resume=resume)
            check_room(place.parent, room)
            (work / DRAFT).mkdir(mode=0o700)
        yield ResultFolder(Path(path), place, work / DRAFT, work / CHECKPOINTS, allowed_mode(private))


def place_for(
    folder: str | Path | ResultFolder, *, replace: bool = False, private: Iterable[Path] = ()
) -> contextlib.AbstractContextManager[ResultFolder]:
    """A folder that is held already, or else hold the place for one."""
    if isinstance(folder, ResultFolder):
        return contextlib.nullcontext(folder)
    return result_folder(folder, replace=replace, private=private)


def interrupted(path: Path) -> bool:
    """Whether a run into this folder was interrupted and can go on."""
    return (hidden_beside(path.resolve()) / CHECKPOINTS).is_dir()


def check_place(place: Path, *, replace: bool) -> None:
    """Refuse a place that a folder of results may not take.

    Raises:
        UsageError: It is a file, a folder that others have written to, or an earlier result that is to stay.
    """
    if not os.path.lexists(place):
        return
    if not place.is_dir():
        raise UsageError(f"'{place}' is a file, expected a folder for the results")
    real = place.resolve()
    if real.is_mount() or Path.cwd().is_relative_to(real):
        what = "where a disk is mounted" if real.is_mount() else "the folder you are in"
        raise UsageError(f"'{place}' is {what}, which cannot be put in place as a whole; name a folder in it")
    found = {file.relative_to(place).as_posix() for file in files_in(place)}
    if not found and not any(place.iterdir()):
        return
    known = read_manifest(place)
    others = sorted(found - {MANIFEST} - set(known or ()))
    if known is None or others:
        which = f", such as '{others[0]}'" if others else ""
        raise UsageError(f"'{place}' holds what no repair has put there{which}; choose another folder")
    if not replace:
        raise UsageError(
            f"'{place}' holds the results of an earlier run; choose another folder, or replace them", argument="replace"
        )


def _check_interrupted(checkpoints: Path, place: str | Path, *, replace: bool, resume: bool) -> None:
    if not checkpoints.is_dir() or resume:
        return
    if not replace:
        raise UsageError(f"a run into '{place}' was interrupted and can go on from there", argument="resume")
    shutil.rmtree(checkpoints)


def _settle(draft: Path, allowed: int) -> None:
    """Set the permissions of everything in a finished folder, and force it to the disk."""
    for path in files_in(draft):
        path.chmod(path.stat().st_mode & allowed)
        sync_file(path)
    for top, _, _ in os.walk(draft, topdown=False):
        os.chmod(top, allowed | (allowed & 0o444) >> 2)  # who may read may also look into it
        sync_folder(Path(top))


def _exchange(new: Path, old: Path) -> None:
    """Two folders change places; where the system cannot do that at once, the next run finishes what was begun."""
    try:
        _exchanged(new, old)
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
            raise
        os.rename(old, new.parent / OLD)
        os.rename(new, old)


def _exchanged(new: Path, old: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    first, second = os.fsencode(new), os.fsencode(old)
    if hasattr(libc, "renameat2"):
        failed = libc.renameat2(NOWHERE, first, NOWHERE, second, EXCHANGE)
    elif hasattr(libc, "renamex_np"):
        failed = libc.renamex_np(first, second, EXCHANGE)
    else:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    if failed:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), str(old))


def _recover(work: Path, place: Path) -> None:
    """Finish an exchange that was stopped between its two renames: the new folder was whole by then."""
    if (work / OLD).is_dir() and not os.path.lexists(place):
        os.rename(work / DRAFT if (work / DRAFT).is_dir() else work / OLD, place)
