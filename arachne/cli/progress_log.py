"""A sign of life: one line with the step, the best patch so far and the time left.

On a terminal the line stands beside a spinner; elsewhere it is printed every half minute.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from arachne.search.state import Generation

EVERY = 30.0
"""Seconds between two lines."""

WINDOW = 8
"""Generations over which a pace is measured."""

MIN_TIMED = 15.0
"""Seconds of a search before its remaining time is shown; the searches that run first are the quick ones."""


class Heartbeat:
    """Reports the progress of a run; without a terminal from a thread, because a long step cannot report by itself.

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
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True, name="arachne-heartbeat")
        self.step("")

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def step(self, name: str) -> None:
        """A step begins."""
        self._step, self._began = name, self._clock()
        self._times: list[tuple[int, float]] = []
        self._slowest = 0.0
        self._best: Generation | None = None

    def generation(self, at: Generation) -> None:
        """A generation of the search is over."""
        self._times = [*self._times, (at.number, self._clock())][-WINDOW - 1 :]
        (first, began), (last, now) = self._times[0], self._times[-1]
        if last > first:
            self._slowest = max(self._slowest, (now - began) / (last - first))
        if at.repaired > at.broken and (self._best is None or _gain(at) > _gain(self._best)):
            self._best = at

    def line(self) -> str:
        """Return the line, such as `search: 50 s, step 12 of 100, best so far 12 repaired, 1 broken; about 7 min left`.

        The best patch is the one that repairs most more than it breaks, on the inputs the search works on.
        """
        words = f"{self._step or 'starting'}: {duration(self._clock() - self._began)}"
        if not self._times:
            return words
        of = "" if self._generations is None else f" of {self._generations}"
        words += f", step {self._times[-1][0]}{of}"
        if self._best is not None:
            words += f", best so far {self._best.repaired} repaired, {self._best.broken} broken"
        left = self._seconds_left()
        return words if left is None else f"{words}; about {duration(left)} left"

    def _seconds_left(self) -> float | None:
        """Seconds to the last generation, if the rest go as slowly as the slowest `WINDOW` of this run."""
        now = self._clock()
        if self._generations is None or not self._slowest or now - self._began < MIN_TIMED:
            return None
        number, at = self._times[-1]
        slowest = max(self._slowest, (now - at) / WINDOW)
        return max(0.0, slowest * (self._generations - number) - (now - at))

    def _beat(self) -> None:
        while not self._done.wait(self._every):
            self._say(self.line())


def _gain(at: Generation) -> int:
    return at.repaired - at.broken


def duration(seconds: float) -> str:
    """`40 s`, `12 min`, `3 h 5 min`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
