"""How many processors nobody else uses, as the kernel counts it."""

from __future__ import annotations

import os
import time
from contextlib import suppress

LEAST_SECONDS = 0.1
"""Ticks of the kernel's clock are a hundredth of a second: less than this tells nothing."""

IDLE_FIELD = 4
"""Where a line of `/proc/stat` has the ticks during which a processor was idle."""


class IdleWatch:
    """Watches the processors that this process may use, from now on."""

    def __init__(self) -> None:
        self._start, self._before = time.monotonic(), _idle_seconds()

    def idle_processors(self) -> float | None:
        """Return how many processors were idle on average; None where that is not known, or not yet."""
        seconds, now = time.monotonic() - self._start, _idle_seconds()
        if self._before is None or now is None or seconds < LEAST_SECONDS:
            return None
        return (now - self._before) / seconds


def _idle_seconds() -> float | None:
    """Return for how long the processors of this process have been idle, added up; None where nobody counts it."""
    with suppress(OSError, AttributeError, ValueError, IndexError):
        own = {f"cpu{number}" for number in os.sched_getaffinity(0)}
        with open("/proc/stat", encoding="ascii") as file:
            lines = [line.split() for line in file if line.startswith("cpu")]
        return sum(int(line[IDLE_FIELD]) for line in lines if line[0] in own) / os.sysconf("SC_CLK_TCK")
    return None
