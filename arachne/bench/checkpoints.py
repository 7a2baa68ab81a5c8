"""Checkpoints of a comparison: one folder per searcher, and the processor time that each has taken so far."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from arachne.errors import InputError
from arachne.io.arrays import read_arrays, write_arrays
from arachne.io.output_paths import environment_faults, make_folder
from arachne.io.stored_values import real
from arachne.results.checkpoint import Checkpoints

SCHEMA, TIME = "arachne.compared/1", "processor-seconds.npz"


class BenchCheckpoints:
    """The checkpoints of several searches, one after the other; the last state of one that has ended stays.

    Args:
        folder: The folder that gets a folder for each search.
        resume: Whether to go on from the checkpoints that are there.
        tell: Called with sentences about what is gone on from.
    """

    def __init__(self, folder: Path, *, resume: bool, tell: Callable[[str], None] | None = None) -> None:
        self._folder, self._resume, self._tell = folder, resume, tell
        self._name, self._own_folder = "", folder
        self._current: Checkpoints | None = None
        self._ended = 0
        self.pause: Callable[[], None] | None = None
        """Called after every state of every search."""

    def begin(self, number: int, name: str) -> Checkpoints:
        """Return the checkpoints of the next search."""
        self._name, self._own_folder, self._ended = name, self._folder / f"{number:02}", number
        found = Checkpoints(self._own_folder, tell=self._tell)
        found.resume, found.pause = self._resume and found.has_files, self.pause
        self._current = found
        return found

    def seconds_before(self) -> float:
        """Return the processor time that earlier runs have spent on this search, where they have written it down."""
        if self._current is None or not self._current.resume:
            return 0.0
        with suppress(InputError):
            return max(0.0, real(read_arrays(self._own_folder / TIME, SCHEMA)[1]["seconds"], "seconds"))
        return 0.0

    def keep(self, seconds: float) -> None:
        """Write down the latest state of this search and its processor time."""
        self.flush()
        if self.has_files:
            write_arrays(self._own_folder / TIME, {}, {"schema": SCHEMA, "seconds": seconds})

    @property
    def has_files(self) -> bool:
        """Whether the disk holds a state to resume from."""
        return self._current is not None and (self._ended > 0 or self._current.has_files)

    @property
    def resumable(self) -> bool:
        """Whether memory or the disk holds a state to resume from."""
        return self._current is not None and (self._ended > 0 or self._current.resumable)

    @property
    def progress(self) -> str:
        """Where a run resumes, such as `margin, generation 57`."""
        if self._current is None or not self._current.resumable:
            return f"{self._ended} of the searches"
        return f"{self._name}, {self._current.progress}"

    def flush(self) -> None:
        """Write the latest state of this search, unless it is written."""
        if self._current is not None and self._current.resumable:
            with environment_faults(self._folder):
                make_folder(self._folder)
            self._current.flush()

    def forget(self) -> None:
        """Do nothing: the folder goes with the run."""
