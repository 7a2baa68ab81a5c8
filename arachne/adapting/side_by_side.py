"""Independent work in several threads, for frameworks that let go of Python's lock; results come in the order of work.

What each piece gives does not depend on how many run at once, so neither does anything that is made of them in order.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from arachne.errors import UsageError

Item = TypeVar("Item")
Result = TypeVar("Result")

MAX_THREADS = 1024
"""The most threads that a user may ask for."""

MIN_SECONDS = 0.005
"""Pieces that take less by the clock run one after the other: threads would wait for Python's lock most of the time."""


def allowed_threads() -> int:
    """Return the number of processors this process may use, or what `ARACHNE_THREADS` says.

    Raises:
        UsageError: `ARACHNE_THREADS` is no such number.
    """
    given = os.environ.get("ARACHNE_THREADS")
    if given is not None:
        if not (given.isdecimal() and len(given) <= 4 and 1 <= int(given) <= MAX_THREADS):
            raise UsageError(f"ARACHNE_THREADS is '{given[:40]}', expected a number of threads from 1 to {MAX_THREADS}")
        return int(given)
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # no affinity masks on this system
        return os.cpu_count() or 1


def run_side_by_side(
    work: Callable[[Item], Result], items: Iterable[Item], beside: Callable[[], Callable[[Item], Result] | None]
) -> Iterator[Result]:
    """Give what `work` gives for each item, in order; several at a time if the first takes long.

    Args:
        work: Runs one item in this thread.
        items: The items, taken one by one in this thread.
        beside: Asked once, if the first item took long: what runs one item in a thread of its own; None if nothing may.
    """
    waiting, threads, start = iter(items), allowed_threads(), time.perf_counter()
    for item in waiting:
        yield work(item)
        break
    apart = beside() if threads > 1 and time.perf_counter() - start >= MIN_SECONDS else None
    if apart is None:
        yield from map(work, waiting)
        return
    with ThreadPoolExecutor(threads, "arachne-batch") as pool:
        running: deque[Future[Result]] = deque()
        try:
            for item in waiting:
                running.append(pool.submit(apart, item))
                if len(running) > threads:  # one is ready for the thread that is done first
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()
        finally:
            for one in running:
                one.cancel()
