"""What a command writes to is swapped for links, hard links and other folders, at stages from its first call on."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

from tests.safety.rows import Row
from tests.safety.runs import Runs
from tests.safety.swaps import COMMANDS, SWAPS, swapped

ORDER = 25
STAGES = 12
"""Calls at which each swap is tried, spread over all of a command's."""


def run(seed: int, jobs: int) -> Iterator[Row]:
    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(partial(_row, seed=seed), COMMANDS)


def stages(calls: int, seed: int) -> list[int]:
    """The calls to strike at: the first, the last, and others drawn between them."""
    rng = np.random.default_rng([seed, calls])
    drawn = rng.permutation(np.arange(2, calls))[: STAGES - 2].tolist()
    return sorted({1, calls, *drawn})


def _row(command: str, seed: int) -> Row:
    attack = f"links, hard links and swaps at stages of `{command}`"
    with Runs() as runs, swapped(runs, command) as one:
        if runs.library is None:
            return Row(attack, 0, "not tried: there is no C compiler here", ("there is no C compiler",))
        tried = [(name, number) for name in SWAPS for number in stages(one.count(), seed)]
        failures = [
            f"{command}, {name} at call {number}: {wrong}"
            for name, number in tried
            for wrong in one.attack(SWAPS[name], number)
        ]
    return Row(attack, len(tried), "nothing outside was touched, nothing was lost", tuple(failures))
