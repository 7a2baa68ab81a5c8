"""When a checkpoint is written, how many are kept, and which one a run resumes from."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from arachne.errors import ArachneError, CheckpointError, EnvironmentFaultError, InputError
from arachne.io.folder import HELD, Folder, plain_path
from arachne.io.output_paths import environment_faults, make_folder, remove_from, remove_if_empty
from arachne.io.own_key import check_ours_alone, read_own_key
from arachne.localise import Localisation
from arachne.model.backend import ModelBackend
from arachne.model.passes import PassKeeper, PassState
from arachne.results.checkpoint.fields import check_fields
from arachne.results.checkpoint.files import (
    Saved,
    read_localisation,
    read_saved,
    write_localisation,
    write_saved,
)
from arachne.results.checkpoint.passes import PassFiles
from arachne.search.state import SearchState

KEPT = 2
"""How many checkpoints stay: a run resumes from an older one where the newest is damaged."""

SHARE = 0.01
"""The share of the time that writing checkpoints may take; a step that would take more is not written at once."""

FIRST_GUESS = 0.05
"""Seconds that the first checkpoint is expected to take."""

LOCALISED = "localised.npz"
NAME = re.compile(r"search-(\d{6,12})\.npz")
PASS_NAME = re.compile(r"pass-[0-9a-f]{16}\.npz")
LEFT_BEHIND = re.compile(r"\.([^.]+\.)?(search-\d{6,12}|pass-[0-9a-f]{16}|localised)\.npz(\.arachne)?")
"""Names of files that a killed run was writing."""


class Checkpoints:
    """The checkpoints of one repair, in a folder of their own.

    The latest state is always held here, and written as often as `share` allows; `flush` writes it in any case.

    Args:
        folder: Where they are; made when the first is written.
        resume: Whether to go on from what is there. Without, a folder that holds a checkpoint is refused.
        tell: Called with a sentence about what is gone on from, or cannot be.
        share: The share of the time that writing may take, `SHARE` when None; 1 writes every step.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        resume: bool = False,
        tell: Callable[[str], None] | None = None,
        share: float | None = None,
    ) -> None:
        held = str(folder).startswith(HELD)
        self.folder = plain_path(Path(folder))
        self._path = Path(folder) if held else Path(folder).resolve()
        self.resume = resume
        self.pause: Callable[[], None] | None = None
        """Called after every state; what it raises ends the search, which can be gone on with from that state."""
        self.seconds: Callable[[], Mapping[str, float]] = dict
        """The time spent so far, by step."""
        self._tell = tell
        self._share = SHARE if share is None else share
        self.fields: Mapping[str, Any] = {}
        """The fields that a run must share with the one it goes on from; `run_fields` makes them."""
        self.passes: PassKeeper = PassFiles(self)
        """Keeps the passes of localisations that are not finished."""
        self._localised: tuple[Localisation, Mapping[str, Any]] | None = None
        self._latest: tuple[SearchState, Mapping[str, Any]] | None = None
        self._written = True
        self._advanced = self._told_of_passes = False
        self._number = 0
        self._began = time.monotonic()
        self._spent, self._guess = 0.0, FIRST_GUESS
        self._one_writer = threading.Lock()

    @property
    def has_files(self) -> bool:
        """Whether the disk holds a state to resume from."""
        return bool(self._by_number() or self._names(PASS_NAME)) or (self._path / LOCALISED).is_file()

    @property
    def seconds_writing(self) -> float:
        """Seconds that writing has taken since the search began."""
        return self._spent

    @property
    def resumable(self) -> bool:
        """Whether memory or the disk holds a state to resume from."""
        return self._latest is not None or self._localised is not None or self.has_files

    @property
    def progress(self) -> str:
        """Where a run resumes, such as `generation 57`."""
        if self._latest is None and self._localised is None:
            return "a part of the localisation"
        return "localisation" if self._latest is None else Saved({}, *self._latest, {}).progress

    def open(self, fields: Mapping[str, Any]) -> Saved | None:
        """Find the state to resume from, if there is one; called once the data is split.

        Args:
            fields: What the run depends on, `run_fields`.

        Raises:
            CheckpointError: There are checkpoints of another run, or of one nobody asked to resume, or all are damaged,
                or others can write to their folder.
        """
        self.fields = fields
        found = self._by_number()
        if not self.resume and self.has_files:
            raise CheckpointError(
                f"'{self.folder}' holds the checkpoint of a run that has not ended; resume it, or start over",
                argument="resume",
            )
        if self.has_files:
            with Folder.open(self._path) as folder:
                check_ours_alone(folder)
        saved = self._read(found) if found else None
        if saved is not None:
            check_fields(saved.fields, fields, str(self.folder))
        if self.resume and saved is None and not self.has_files:
            self._say(f"'{self.folder}' holds no checkpoint yet: the run starts from the beginning")
        self._tell_of_key()
        self._number = max(found, default=0)
        self._remove(self._names(LEFT_BEHIND))
        if saved is not None:
            self._latest = saved.state, saved.random
            self._say(f"resumed after {saved.progress}")
        return saved

    def localisation(self, backend: ModelBackend, rng: np.random.Generator) -> Localisation | None:
        """A localisation that had been finished; `rng` is then as it was after it."""
        path = self._path / LOCALISED
        if not path.is_file():
            return None
        try:
            found, random = read_localisation(path, backend, self.fields)
        except InputError as error:
            self._say(f"{self._public_text(error)}; the weights are localised again")
            return None
        rng.bit_generator.state = random
        self._localised = found, random
        return found

    def keep_localisation(self, found: Localisation, rng: np.random.Generator) -> None:
        """Keep a finished localisation; the time counts from here for the search."""
        if self._localised is None:
            self._remove([LOCALISED])
            self._localised, self._written = (found, rng.bit_generator.state), False
            if self._due():
                self.flush()
        self._began, self._spent = time.monotonic(), 0.0

    def read_pass(self, name: str, read: Callable[[Path], tuple[int, PassState]]) -> tuple[int, PassState]:
        """Read how far a pass had got; `(0, {})` where it begins."""
        if not self.resume or not (self._path / name).is_file():
            return 0, {}
        try:
            done, state = read(self._path / name)
        except InputError as error:
            self._say(f"{self._public_text(error)}; this pass begins anew")
            return 0, {}
        if not self._told_of_passes:
            self._say("resumed in the localisation")
        self._told_of_passes = True
        return done, state

    def keep_pass(self, name: str, write: Callable[[Path], None]) -> None:
        """Write how far a pass has got, if that is due or the run is to end here."""

        def write_file() -> None:
            self._make_folder()
            write(self._path / name)

        try:
            if self.pause is not None:
                self.pause()
        except BaseException:
            write_file()
            raise
        if self._due():
            self._time_write(write_file)

    def at(self, state: SearchState, rng: np.random.Generator) -> None:
        """Keep a state, and write it if that is due."""
        self._latest, self._written, self._advanced = (state, rng.bit_generator.state), False, True
        if self._due():
            self.flush()
        if self.pause is not None:
            self.pause()

    def flush(self) -> None:
        """Write the latest state, unless it is written.

        Raises:
            EnvironmentFaultError: It cannot be written; the checkpoints before it are still there.
        """
        with self._one_writer:
            if not self._written:
                self._time_write(self._write)

    @contextmanager
    def flush_on_exit(self) -> Iterator[None]:
        """A block after which, however it ends, the latest state is on the disk.

        Raises:
            CheckpointError: The search could make nothing of the state it was to go on from.
        """
        try:
            yield
        except ArachneError:
            self.flush()
            raise
        except Exception as error:
            begun = self._told_of_passes or self._latest is not None
            if self.resume and begun and not self._advanced and not isinstance(error, MemoryError):
                reason = f"{type(error).__name__}: {error}"
                raise CheckpointError(
                    f"'{self.folder}' holds a checkpoint that does not fit the search ({reason}); start over",
                    argument="replace",
                ) from error
            self.flush()
            raise
        except BaseException:
            self.flush()
            raise

    def forget(self) -> None:
        """Forget everything: the repair has ended."""
        self._remove([*self._names(NAME), *self._names(PASS_NAME), *self._names(LEFT_BEHIND), LOCALISED])
        remove_if_empty(self._path)

    def _read(self, found: Mapping[int, Path]) -> Saved:
        wrong: list[str] = []
        for number in sorted(found, reverse=True):
            try:
                saved = read_saved(found[number])
            except InputError as error:
                wrong.append(self._public_text(error))
                continue
            for reason in wrong:
                self._say(f"{reason}; the checkpoint before it is used")
            return saved
        raise CheckpointError(f"no checkpoint is whole: {'; '.join(wrong)}; start over", argument="replace")

    def _tell_of_key(self) -> None:
        """Say at the beginning, where there is no key to mark checkpoints with, that none can be gone on from."""
        try:
            read_own_key()
        except EnvironmentFaultError as error:
            self._say(f"note: this run cannot be resumed, for its checkpoints are not marked: {error}")

    def _write(self) -> None:
        self._make_folder()
        if self._localised is not None and not (self._path / LOCALISED).is_file():
            write_localisation(self._path / LOCALISED, *self._localised, self.fields)
            self._remove(self._names(PASS_NAME))
        if self._latest is not None:
            self._write_state(*self._latest)
        self._written = True

    def _write_state(self, state: SearchState, random: Mapping[str, Any]) -> None:
        number = self._number + 1
        write_saved(self._path / f"search-{number:06}.npz", Saved(self.fields, state, random, self.seconds()))
        self._number = number
        for old, path in self._by_number().items():
            if old <= number - KEPT:
                with suppress(OSError):  # one more than needed is no reason to end a run
                    remove_from(self._path, [path.name])

    def _make_folder(self) -> None:
        with environment_faults(self.folder):
            make_folder(self._path)

    def _time_write(self, write: Callable[[], None]) -> None:
        start = time.monotonic()
        write()
        took = time.monotonic() - start
        self._spent, self._guess = self._spent + took, took

    def _due(self) -> bool:
        return self._share >= 1 or self._spent + self._guess <= self._share * (time.monotonic() - self._began)

    def _by_number(self) -> dict[int, Path]:
        """The checkpoints by their numbers."""
        return {int(name[7:-4]): self._path / name for name in self._names(NAME)}

    def _names(self, pattern: re.Pattern[str]) -> list[str]:
        if self._path.is_symlink() or not self._path.is_dir():
            return []
        return sorted(path.name for path in self._path.iterdir() if pattern.fullmatch(path.name))

    def _remove(self, names: Iterable[str]) -> None:
        with environment_faults(self.folder):
            remove_from(self._path, names)

    def _public_text(self, error: InputError) -> str:
        """The text of an error about a file, with the path that people know."""
        return str(error).replace(str(self._path), str(self.folder))

    def _say(self, text: str) -> None:
        if self._tell is not None:
            self._tell(text)
