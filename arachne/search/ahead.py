"""Runs of a search shared out among processes: each computes some of them, and gets the others' results.

Runs of a cross-fitted search depend on each other by nothing but the random numbers that they draw, and which numbers
are drawn does not depend on what is computed. So a process can draw what earlier runs will draw, and begin with a later
one. All processes of a team go on with the same search from where it was forked (`arachne.search.forked`), and every
result is used by all of them: states, checkpoints and patches are the same to the bit for any number of processes. The
first one alone knows the clock and decides what is worth sharing; it reports states, and ends the others.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from arachne.adapting.side_by_side import allowed_threads
from arachne.search.forked import Team, can_fork
from arachne.search.idle import IdleWatch
from arachne.search.problem import Problem

AHEAD = "ahead"
"""The name under which the problems of a search share an `Ahead`."""

MIN_SECONDS = 0.02
"""Runs that take less by the clock are not worth waiting for each other."""

MIN_SECONDS_TO_FORK = 0.05
"""Runs that take less are not worth a fork, which copies what either process writes from then on."""

MAX_PROCESSES = 4
"""The most processes of a team: a search has few runs."""

MIN_WAIT, WAIT_SHARE = 10.0, 5.0
"""The seconds, and how many times the seconds of a run, that another process may need for a result."""


@dataclass(frozen=True, eq=False)
class Runs:
    """The runs of a search, by number.

    Attributes:
        compute: Called with a number and `rng`; gives the results of that run one by one.
        skip: Called likewise; draws the random numbers of that run and does nothing else.
    """

    compute: Callable[..., Iterable[Any]]
    skip: Callable[..., None]


class Ahead:
    """Shares runs out among processes.

    Args:
        processes: The most processes there may be, this one included.
        only_idle: Whether there are only as many as there are idle processors when they are begun.
    """

    def __init__(self, processes: int, *, only_idle: bool = False) -> None:
        self._processes = min(processes, MAX_PROCESSES)
        self._idle = IdleWatch() if only_idle else None
        self._team: Team | None = None
        self._seconds: dict[str, float] = {}
        self._owners: dict[int, int] = {}
        self._shared = ""
        self._own: deque[tuple[int, Any, Any, Any]] = deque()

    @property
    def leads(self) -> bool:
        """Whether this process was there first: it alone reports to the user."""
        return self._team is None or not self._team.rank

    @contextmanager
    def timing(self, kind: str, share: float = 1.0) -> Iterator[None]:
        """Measure a run of a kind, or a share of one, inside this block."""
        start = time.perf_counter()
        yield
        self._seconds[kind] = max(self._seconds.get(kind, 0.0), (time.perf_counter() - start) / share)

    def share(self, name: str, kind: str, numbers: range, runs: Runs, *, rng: np.random.Generator) -> None:
        """Share some runs out, if it is worth it; all processes call it when they come to the first of these runs.

        Args:
            name: Names the runs.
            kind: The kind under which such a run was measured.
            numbers: The runs. The first process computes the first ones when it comes to them, others theirs now.
            runs: How they are computed.
            rng: The generator as the first of them finds it; it is not changed.
        """
        comparable = isinstance(rng.bit_generator, np.random.PCG64)
        if not comparable or not self._agree(self._seconds.get(kind, 0.0)) or self._team is None:
            return
        parts = [part.tolist() for part in np.array_split(numbers, self._team.size)]
        self._shared = name
        self._owners = {number: rank for rank, part in enumerate(parts) for number in part}
        own, drawn = parts[self._team.rank], copy_generator(rng)
        for number in numbers if self._team.rank and own else ():
            if number > own[-1]:
                break
            if number < own[0]:
                runs.skip(number, rng=drawn)
                continue
            before = drawn.bit_generator.state
            for value in runs.compute(number, rng=drawn):
                self._own.append((number, before, value, before := drawn.bit_generator.state))
                self._team.give(self._own[-1])

    def is_shared(self, name: str, number: int) -> bool:
        """Tell whether a run is one of those that are shared out."""
        return self._team is not None and self._shared == name and number in self._owners

    def take(self, name: str, number: int, kind: str, *, rng: np.random.Generator) -> Any | None:
        """Return the next result of a run, with the generator as it is after it; None if it has to be computed here."""
        if self._team is None or not self.is_shared(name, number):
            return None
        owner = self._owners[number]
        if owner == self._team.rank:
            if not owner:
                return None
            found = self._own.popleft()
        else:
            try:
                found = self._team.receive(owner, MIN_WAIT + WAIT_SHARE * self._seconds.get(kind, 0.0))
            except TimeoutError:
                self._give_up()
                return None
        if found[:2] != (number, rng.bit_generator.state):
            self._give_up()
            return None
        rng.bit_generator.state = found[3]
        return found[2]

    def give(self, name: str, number: int, before: Any, value: Any, *, rng: np.random.Generator) -> None:
        """Give the others a result that the first process has computed, between the generator's states around it."""
        if self._team is not None and not self._team.rank and self.is_shared(name, number):
            self._team.give((number, before, value, rng.bit_generator.state))

    def end(self) -> None:
        """End all other processes; one of these ends itself."""
        if self._team is not None and self._team.rank:
            os._exit(0)
        if self._team is not None:
            self._team.end()
        self._team = None

    def _agree(self, seconds: float) -> bool:
        """Decide in the first process, by its clock, whether runs are shared; tell or hear it in the others."""
        if self._team is not None and self._team.rank:
            heard: bool = self._team.receive(0, np.inf)
            return heard
        if self._team is not None and not self._team.is_whole():
            self.end()
        if self._team is None:
            size = self._processes if seconds >= MIN_SECONDS_TO_FORK else 1
            idle = None if self._idle is None or size < 2 else self._idle.idle_processors()
            size = size if idle is None else min(size, 1 + round(idle))
            if size < 2:
                return False
            try:
                self._team = Team(size)
            except OSError:
                self._processes = 1
            return self._team is not None
        self._team.give(seconds >= MIN_SECONDS)
        return seconds >= MIN_SECONDS

    def _give_up(self) -> None:
        """Go on alone: what failed once would fail again."""
        self.end()
        self._processes = 1


def copy_generator(rng: np.random.Generator) -> np.random.Generator:
    """Return a generator that will draw the same numbers."""
    found = np.random.Generator(type(rng.bit_generator)())
    found.bit_generator.state = rng.bit_generator.state
    return found


@contextmanager
def running_ahead(problem: Problem) -> Iterator[Ahead]:
    """Let a search share its runs out inside this block, where the machine has processors to spare."""
    if AHEAD in problem.shared or not can_fork():
        yield ahead_of(problem)
        return
    ahead = problem.shared[AHEAD] = Ahead(allowed_threads(), only_idle="ARACHNE_THREADS" not in os.environ)
    try:
        yield ahead
    finally:
        problem.shared.pop(AHEAD, None)
        ahead.end()


def ahead_of(problem: Problem) -> Ahead:
    """Return what shares a problem's runs out; outside of a search nothing is shared."""
    found: Ahead = problem.shared.get(AHEAD) or Ahead(1)
    return found
