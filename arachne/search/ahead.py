"""Runs of a search side by side: while one is computed here, the next ones are computed ahead in other threads.

Runs of a cross-fitted search depend on each other by nothing but the random numbers they draw, and what is drawn does
not depend on what is computed. So a run can begin with the generator as it will be, and its results are taken when the
search comes to it: states, checkpoints and patches are the same to the bit for any number of threads. That pays
where a step computes for long outside of Python (`python -m benchmarks.cores`), so it has to be asked for.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from arachne.search.base import Problem

Work = Callable[[np.random.Generator], Iterator[Any]]
"""Gives the results of a run one by one, from a generator of random numbers of its own."""

AHEAD = "ahead"
"""The name under which problems share an `Ahead`."""

MAX_WAIT = 5.0
"""Seconds to wait for runs that nobody needs any more; what they compute touches nothing else."""

THREADS = "ARACHNE_THREADS"
"""The variable that says how many threads to use, where it is set."""


@dataclass(eq=False)
class Job:
    """A run that is computed ahead.

    Attributes:
        random: The generator's state before the result that is taken next.
        found: Results with the generator's state after each; an exception where one was raised.
    """

    random: Mapping[str, Any]
    found: queue.SimpleQueue[tuple[Any, Mapping[str, Any]] | BaseException] = field(default_factory=queue.SimpleQueue)


class Ahead:
    """Computes runs ahead, as many at a time as there are threads beside this one.

    Args:
        threads: The number of threads, this one among them; what `ARACHNE_THREADS` says when None.
    """

    def __init__(self, threads: int | None = None) -> None:
        self.beside = (threads or usable_threads()) - 1
        self._jobs: dict[Any, Job] = {}
        self._ended = threading.Event()
        self._threads: list[threading.Thread] = []

    def begin(self, key: Any, random: Mapping[str, Any], work: Work) -> None:
        """Begin a run in a thread of its own.

        Args:
            key: Its name, by which its results are taken.
            random: The state of the generator that it begins with.
            work: The run.
        """
        job = self._jobs[key] = Job(random)
        thread = threading.Thread(target=self._run, args=(job, work), daemon=True)
        self._threads.append(thread)
        thread.start()

    def take(self, key: Any, rng: np.random.Generator) -> Any:
        """Return the next result of a run, and leave the generator as it is after it; None if there is no such run.

        A run that began with other random numbers than the search has now is forgotten.
        """
        job = self._jobs.get(key)
        if job is None or job.random != rng.bit_generator.state:
            self._jobs.pop(key, None)
            return None
        found = job.found.get()
        if isinstance(found, BaseException):
            raise found
        value, job.random = found
        rng.bit_generator.state = job.random
        return value

    def end(self) -> None:
        """End all runs after the point they are at, and wait a moment for them."""
        self._ended.set()
        until = time.monotonic() + MAX_WAIT
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))

    def _run(self, job: Job, work: Work) -> None:
        rng = np.random.default_rng(0)
        rng.bit_generator.state = dict(job.random)
        try:
            for value in work(rng):
                job.found.put((value, rng.bit_generator.state))
                if self._ended.is_set():
                    return
        except BaseException as error:  # it is raised where the result is taken
            job.found.put(error)


def copy_generator(rng: np.random.Generator) -> np.random.Generator:
    """Return a generator that will draw the same numbers."""
    found = np.random.Generator(type(rng.bit_generator)())
    found.bit_generator.state = rng.bit_generator.state
    return found


def usable_threads() -> int:
    """Return `ARACHNE_THREADS`, or 1: small steps hold Python's lock, and two threads take longer than one."""
    given = os.environ.get(THREADS, "")
    return int(given) if given.isdecimal() and int(given) else 1


@contextmanager
def working_ahead(problem: Problem) -> Iterator[None]:
    """Let searches of a problem compute runs ahead inside this block."""
    if AHEAD in problem.shared:
        yield
        return
    ahead = problem.shared[AHEAD] = Ahead()
    try:
        yield
    finally:
        del problem.shared[AHEAD]
        ahead.end()
