"""A sign of life where there is no terminal: every half minute a line with the step, the best and the time left."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from arachne.search.state import Generation

EVERY = 30.0
"""Seconds between two lines."""


class Heartbeat:
    """Tells how far a run is, from a thread of its own: a step that takes long cannot say so itself.

    Args:
        say: Prints a line.
        generations: How many the search has at most, where that is known.
        every: Seconds between two lines.
        clock: What time it is, in seconds.
    """

    def __init__(
        self,
        say: Callable[[str], None],
        generations: int | None,
        *,
        every: float = EVERY,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._say, self._generations, self._every, self._clock = say, generations, every, clock
        self._step, self._began = "", clock()
        self._first: tuple[int, float] | None = None
        self._latest: tuple[Generation, float] | None = None
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True, name="arachne-heartbeat")

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def step(self, name: str) -> None:
        """A step begins."""
        self._step, self._began, self._first, self._latest = name, self._clock(), None, None

    def generation(self, at: Generation) -> None:
        """A generation of the search is over."""
        now = self._clock()
        self._first = self._first or (at.number, now)
        self._latest = (at, now)

    def line(self) -> str:
        """`search: 1 min so far, generation 12 of 100, fitness 7.30, 12 repaired, 1 broken; at most 7 min left`."""
        words = f"{self._step or 'starting'}: {duration(self._clock() - self._began)} so far"
        if self._latest is None:
            return words
        at = self._latest[0]
        of = "" if self._generations is None else f" of {self._generations}"
        words += f", generation {at.number}{of}, fitness {at.fitness:.2f}, {at.repaired} repaired, {at.broken} broken"
        left = self._seconds_left()
        return words if left is None else f"{words}; at most {duration(left)} left"

    def _seconds_left(self) -> float | None:
        """Seconds to the last generation, if all take as long as those of this run did; the first is not timed."""
        if self._generations is None or self._first is None or self._latest is None:
            return None
        (start, began), (at, now) = self._first, self._latest
        if at.number <= start:
            return None
        each = (now - began) / (at.number - start)
        return max(0.0, each * (self._generations - at.number) - (self._clock() - now))

    def _beat(self) -> None:
        while not self._done.wait(self._every):
            self._say(self.line())


def duration(seconds: float) -> str:
    """`40 s`, `12 min`, `3 h 5 min`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
