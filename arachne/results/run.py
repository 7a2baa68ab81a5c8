"""A run of the engine: its random generator, clock, notes and checkpoints, handed to every stage."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar

import numpy as np

from arachne.model.backend import ModelBackend
from arachne.model.memory import in_batches_that_fit, release_freed_memory
from arachne.model.passes import resuming_passes
from arachne.results.checkpoint import Checkpoints, Saved
from arachne.search import SearchState
from arachne.search.state import OnGeneration, OnState, each_generation

OnStep = Callable[[str], None]
T = TypeVar("T")

TIME_LIMIT = "the time limit"
"""The words that a reason to stop has where it was the time limit."""


class Run:
    """Accompanies a repair from its first stage to its last.

    Args:
        seed: The seed of the run's one random generator.
        time_limit: Seconds after which a search ends with what it has found; None lets it finish.
        checkpoint: Stores what the search has reached, and what an earlier run of the same repair had reached.
        on_step: Called with the name of each stage as it begins.
        on_generation: Called after each generation of the search.
        on_note: Called with a sentence when something is done otherwise than asked.
    """

    def __init__(
        self,
        seed: int,
        *,
        time_limit: float | None = None,
        checkpoint: Checkpoints | None = None,
        on_step: OnStep | None = None,
        on_generation: OnGeneration | None = None,
        on_note: Callable[[str], None] | None = None,
    ) -> None:
        self.rng = np.random.default_rng(seed)
        self.checkpoint = checkpoint
        self.note: Callable[[str], None] = on_note or (lambda sentence: None)
        self.seconds: dict[str, float] = {}
        self._time_limit = time_limit
        self._on_step, self._on_generation = on_step, on_generation
        self._start = time.perf_counter()
        self._current: tuple[str, float] | None = None
        self._resumed: Saved | None = None

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Announce a stage, and add its time to `seconds`; the one before has given back the memory that it freed."""
        if self._on_step is not None:
            self._on_step(name)
        start = time.perf_counter()
        self._current = name, start
        yield
        release_freed_memory()
        self.seconds[name] = self._total(name, start)
        self._current = None

    def fit_memory(self, backend: ModelBackend, work: Callable[[], T], *, keep: str | None = None) -> T:
        """Do some work with the model, in ever smaller batches while memory does not suffice.

        Args:
            backend: The model.
            work: What to do.
            keep: A name for passes that a next run goes on from; those of smaller batches are not kept.
        """
        names = iter([] if keep is None else [keep])

        def attempt() -> T:
            name = next(names, None)
            with nullcontext() if name is None else resuming_passes(backend, name):
                return work()

        return in_batches_that_fit(backend, attempt, rng=self.rng, tell=self.note)

    @contextmanager
    def resuming_passes_of(self, backend: ModelBackend) -> Iterator[None]:
        """Open a block in which passes of the model are kept among the checkpoints, where they have a name."""
        if self.checkpoint is None:
            yield
            return
        backend.pass_keeper = self.checkpoint.passes
        try:
            yield
        finally:
            backend.pass_keeper = None

    def resume(self, fields: Mapping[str, Any]) -> None:
        """Resume from the checkpoint of an earlier run, if there is one.

        Args:
            fields: Everything the run depends on (`run_fields`); a checkpoint with other ones is refused.
        """
        if self.checkpoint is None:
            return
        self._resumed = self.checkpoint.open(fields)
        self.checkpoint.seconds = self._seconds_so_far
        if self._resumed is not None:
            self._start -= sum(self._resumed.seconds.values())
            for name, own in self._resumed.seconds.items():
                self.seconds[name] = round(self.seconds.get(name, 0.0) + own, 4)

    def flush_on_exit(self) -> AbstractContextManager[None]:
        """Open a block after which, however it ends, the latest state is in the checkpoint."""
        return nullcontext() if self.checkpoint is None else self.checkpoint.flush_on_exit()

    def resumed_state(self) -> SearchState | None:
        """Return the state that the search resumes from, with its generator; None at the beginning."""
        if self._resumed is None:
            return None
        self.rng.bit_generator.state = self._resumed.random
        return self._resumed.state

    def on_state(self, first: SearchState | None) -> OnState:
        """Return a callback that stores every state of a search and reports its generations, from `first` on."""
        report = None
        if self._on_generation is not None:
            report = each_generation(self._on_generation, 0 if first is None else len(first.history))

        def call(state: SearchState) -> None:
            if self.checkpoint is not None:
                self.checkpoint.at(state, self.rng)
            if report is not None:
                report(state)

        return call

    def stop_reason(self) -> str | None:
        """Say why a search should end now: the time limit; None while there is time."""
        if self._time_limit is None or time.perf_counter() - self._start < self._time_limit:
            return None
        return f"{TIME_LIMIT} of {self._time_limit:g} s was reached"

    def _seconds_so_far(self) -> dict[str, float]:
        """Return the time of each stage, with the one under way as if it ended now."""
        if self._current is None:
            return dict(self.seconds)
        name, start = self._current
        return {**self.seconds, name: self._total(name, start)}

    def _total(self, name: str, start: float) -> float:
        return round(self.seconds.get(name, 0.0) + time.perf_counter() - start, 4)
