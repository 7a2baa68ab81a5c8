"""Swap what a command writes to for links, hard links and other folders, at stages from its first call on."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

from tests.safety.kept import Kept, Trial
from tests.safety.rows import Row
from tests.safety.runs import Runs
from tests.safety.swaps import COMMANDS, SWAPS, Swapped, prepare_swap

ORDER = 25


def run(seed: int, jobs: int, kept: Kept) -> Iterator[Row]:
    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(partial(_row, seed=seed, kept=kept), COMMANDS)


def stages(calls: int, seed: int, number: int) -> list[int]:
    """The calls to strike at, so many: the first, the last, and others drawn between them."""
    rng = np.random.default_rng([seed, calls])
    drawn = rng.permutation(np.arange(2, calls))[: number - 2].tolist()
    return sorted({1, calls, *drawn})


def _row(command: str, seed: int, kept: Kept) -> Row:
    attack = f"links, hard links and swaps at stages of `{command}`"
    with Runs() as runs, prepare_swap(runs, command) as one:
        if runs.library is None:
            return Row(attack, 0, "not tried: there is no C compiler here", ("there is no C compiler",))
        numbers = stages(one.count(), seed, COMMANDS[command].stages)
        tried = [(name, number) for name in SWAPS for number in numbers]
        found = [kept.trial("swaps", f"{command} {name} {n}", partial(_trial, one, name, n)) for name, n in tried]
    made = [trial for trial in found if trial is not None]
    failures = [wrong for trial in made for wrong in trial.wrong]
    told = "nothing outside was touched, nothing was lost"
    told += f"; {len(found) - len(made)} of {len(found)} not yet tried" if len(made) < len(found) else ""
    return Row(attack, len(made), told, tuple(failures))


def _trial(one: Swapped, name: str, number: int) -> Trial:
    return Trial(tuple(f"{one.command}, {name} at call {number}: {wrong}" for wrong in one.attack(SWAPS[name], number)))
