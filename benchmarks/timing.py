"""Two actions timed in turns, so that what disturbs one disturbs the other."""

from __future__ import annotations

import time
from collections.abc import Callable

Action = Callable[[], object]

clock = time.process_time

LEAST = 0.1
"""An action is repeated until it took at least these seconds."""


def least(first: Action, second: Action, times: int = 5) -> tuple[float, float]:
    """The least time of each, measured in turns after one round that does not count."""
    taken: tuple[list[float], list[float]] = ([], [])
    for number in range(times + 1):
        for action, found in zip((first, second), taken, strict=True):
            start, runs = clock(), 0
            while not runs or clock() - start < LEAST:
                action()
                runs += 1
            if number:
                found.append((clock() - start) / runs)
    return min(taken[0]), min(taken[1])
