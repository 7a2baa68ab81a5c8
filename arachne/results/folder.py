"""A folder of results that changes as a whole or not at all.

It is made as `result` in the working folder beside it, forced to the disk, and put into its place by one rename, with a
manifest of what it holds. So there is the old result or the new one, whenever a run is stopped, and never some files of
each. What may be replaced is a folder that an earlier run has made and nobody has added to or changed a file in, and
only on request. All of this goes through open descriptors: see `arachne.io.folder`.

    with result_folder("fix", replace=False) as folder:     # locked, and known to be writable, before any work
        ...                                                 # folder.checkpoints outlives a run that fails
        (folder.draft / "patch.json").write_text(...)
        folder.publish()
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from arachne.errors import CheckpointError, EnvironmentFaultError, UsageError
from arachne.io.folder import Folder
from arachne.io.manifest import (
    MANIFEST,
    check_made_by_run,
    files_in,
    not_ours,
    read_manifest,
    remove_listed,
    write_manifest,
)
from arachne.io.moving import ASIDE, exchange, exchange_back, put_new
from arachne.io.output_paths import allowed_mode, check_room, environment_faults, folders_above
from arachne.io.own_key import OPEN, check_ours_alone
from arachne.io.working_folder import CHECKPOINTS, DRAFT, HIDDEN, WorkingFolder, hidden_beside, working_folder


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
        work: The working folder it is made in.
        held: The folder behind `draft`, open.
    """

    named: Path
    path: Path
    draft: Path
    checkpoints: Path
    allowed: int
    work: WorkingFolder
    held: Folder

    def publish(self) -> None:
        """Move the finished files into their place, all at once; the checkpoints are not needed afterwards.

        Raises:
            UsageError: Somebody has put other files there meanwhile.
            EnvironmentFaultError: The disk is full, or the path cannot be written.
        """
        with environment_faults(self.path):
            self.held.check_reached()
            self._remove_working_folders()
            write_manifest(self.draft)
            self._remove_working_folders()
            self.held.settle(self.allowed)
            self.work.check_unmoved()
            if self.work.folder.identity_of(DRAFT) != self.held.identity:
                raise EnvironmentFaultError(f"the draft of '{self.path}' was replaced meanwhile; nothing was written")
            if self.work.parent.stat(self.path.name) is None:
                put_new(self.work.folder, DRAFT, self.work.parent, self.path.name)
            else:
                self._replace()
            self.work.parent.sync()
            self.work.folder.remove(CHECKPOINTS)

    def _remove_working_folders(self) -> None:
        """Remove what writing a file of the draft could not clear away; while that fails, nothing is published."""
        for name in self.held.names():
            if name.startswith(".") and name.endswith(HIDDEN):
                self.held.remove(name)

    def _replace(self) -> None:
        """Change places with an earlier result, which is looked at where nobody else can reach it, and removed."""
        check_result_path(self.path, replace=True)
        work, name = self.work, self.path.name
        aside = exchange(work.folder, DRAFT, work.parent, name)
        try:
            with work.folder.enter(aside) as old:
                known = check_made_by_run(old, self.path) if old.names() else {}
        except BaseException:
            exchange_back(work.folder, aside, work.parent, name, DRAFT)
            raise
        work.parent.sync()
        with contextlib.suppress(OSError), work.folder.enter(aside) as old:  # what stays is removed by the next run
            remove_listed(old, known)
        work.folder.remove_empty(aside)


@contextlib.contextmanager
def result_folder(
    path: str | Path,
    *,
    replace: bool = False,
    resume: bool = False,
    private: Iterable[Path] = (),
    room: int = 0,
) -> Iterator[ResultFolder]:
    """Reserve the path of a folder of results, and leave it as it was unless `publish` is called.

    Args:
        path: Where the folder goes: nothing, an empty folder, or one that an earlier run has made.
        replace: Whether an earlier run's folder, and what an interrupted run has left, may be replaced.
        resume: Whether an interrupted run goes on.
        private: Files that the results tell something about: nobody who could not read them can read the results.
        room: How many bytes will be written, about.

    Raises:
        UsageError: Something is there that may not be replaced.
        CheckpointError: A run is to go on from a folder that others may have filled.
        EnvironmentFaultError: Another run writes there, or the path cannot be written, or has too little room.
    """
    resolved = Path(path).resolve()
    with contextlib.ExitStack() as stack:
        with environment_faults(Path(path)):
            check_result_path(Path(path), replace=True)  # before anything is made there, if only a folder above it
            stack.enter_context(folders_above(resolved))
            recover = partial(_recover, path=resolved)
            work = stack.enter_context(working_folder(resolved, kept=(CHECKPOINTS,), recover=recover))
            may_go = replace or (resume and _holds_folder(work.folder, CHECKPOINTS))
            check_result_path(Path(path), replace=may_go, by_hash=True)
            _check_interrupted(work.folder, path, replace=replace, resume=resume)
            check_room(resolved.parent, room)
            held = stack.enter_context(work.make(DRAFT))
        checkpoints = work.folder.path / CHECKPOINTS
        yield ResultFolder(Path(path), resolved, held.path, checkpoints, allowed_mode(private), work, held)


def reserve_folder(
    folder: str | Path | ResultFolder, *, replace: bool = False, private: Iterable[Path] = ()
) -> contextlib.AbstractContextManager[ResultFolder]:
    """A folder that is held already, or else reserve the path of one."""
    if isinstance(folder, ResultFolder):
        return contextlib.nullcontext(folder)
    return result_folder(folder, replace=replace, private=private)


def can_resume(path: Path) -> bool:
    """Whether a run into this folder was interrupted and can be resumed."""
    hidden = hidden_beside(path.resolve())
    found = hidden / CHECKPOINTS
    return found.is_dir() and not hidden.is_symlink() and not found.is_symlink()


def check_result_path(path: Path, *, replace: bool, by_hash: bool = False) -> None:
    """Refuse a path that a folder of results may not take.

    Args:
        path: Where the folder goes.
        replace: Whether an earlier result may be replaced.
        by_hash: Whether its files are compared with their hashes, not only with their names.

    Raises:
        UsageError: It is a file, a folder that others have written to, or an earlier result that is to stay.
    """
    if not os.path.lexists(path):
        return
    if not path.is_dir():
        raise UsageError(f"'{path}' is a file, expected a folder for the results")
    real = path.resolve()
    if real.is_mount() or Path.cwd().is_relative_to(real):
        what = "where a disk is mounted" if real.is_mount() else "the folder you are in"
        raise UsageError(f"'{path}' is {what}, which cannot be put in place as a whole; name a folder in it")
    if not any(path.iterdir()):
        return
    known = read_manifest(path)
    found = {file.relative_to(path).as_posix() for file in files_in(path)}
    others = sorted(found - {MANIFEST} - set(known or ()))
    if known is None or others:
        raise not_ours(path, "".join(others[:1]))
    if not replace:
        raise UsageError(
            f"'{path}' holds the results of an earlier run; choose another folder, or replace them", argument="replace"
        )
    if by_hash:
        with Folder.open(path) as folder:
            check_made_by_run(folder, path)


def _holds_folder(folder: Folder, name: str) -> bool:
    found = folder.stat(name)
    return found is not None and stat.S_ISDIR(found.st_mode)


def _check_interrupted(work: Folder, path: str | Path, *, replace: bool, resume: bool) -> None:
    if work.stat(CHECKPOINTS) is None:
        return
    if resume:
        if not _holds_folder(work, CHECKPOINTS):
            raise CheckpointError(
                f"'{work.named / CHECKPOINTS}' is a link, so its checkpoints may be a stranger's and are not gone on "
                "from; start over",
                argument="replace",
            )
        check_ours_alone(work, forbidden=OPEN)
        return
    if not replace and _holds_folder(work, CHECKPOINTS):
        raise UsageError(f"a run into '{path}' was interrupted and can go on from there", argument="resume")
    work.remove(CHECKPOINTS)


def _recover(work: WorkingFolder, path: Path) -> None:
    """Finish an exchange that was stopped between its two renames: the new folder was whole by then."""
    if _holds_folder(work.folder, ASIDE) and work.parent.stat(path.name) is None:
        whole = DRAFT if _holds_folder(work.folder, DRAFT) else ASIDE
        put_new(work.folder, whole, work.parent, path.name)
