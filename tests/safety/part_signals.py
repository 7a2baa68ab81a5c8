"""SIGINT and SIGTERM at random times: an end in good order within five seconds, and the printed command goes on."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

from tests.safety.kept import Kept, Trial
from tests.safety.resumed import SEARCHES, Repair, repair
from tests.safety.rows import Row
from tests.safety.runs import Runs

ORDER = 21
NUMBER = 50
SECONDS = 5.0
AT_ONCE = 1.0
"""Seconds in which a run must have ended after one signal, and after a second one."""


def run(seed: int, jobs: int, kept: Kept) -> Iterator[Row]:
    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(lambda number: _row(number, seed, kept), (signal.SIGINT, signal.SIGTERM))
    yield _twice(seed, kept)


def _row(number: signal.Signals, seed: int, kept: Kept) -> Row:
    def trial(one: Repair, n: int) -> Trial:
        went_on, after, wrong = interrupt(one, number, np.random.default_rng([seed, n, number]))
        wrong += _late(after, SECONDS)
        told = tuple(f"{number.name} number {n} of seed {seed}: {what}" for what in wrong)
        return Trial(told, {"went on": went_on, "after": round(after, 2)})

    with Runs() as runs, repair(runs, SEARCHES["de"]) as first, repair(runs, SEARCHES["margin"]) as second:
        trials = {f"{number.name} {n} {seed}": partial(trial, (first, second)[n % 2], n) for n in range(NUMBER)}
        made = kept.trials("signals", trials)
    slowest, resumed = _slowest(made), sum(trial.seen["went on"] for trial in made)
    told = f"exit {128 + number} in {slowest:.1f} s at most; {resumed} went on by the printed command, byte-identical"
    return Row(number.name, len(made), told, tuple(wrong for trial in made for wrong in trial.wrong))


def _slowest(made: list[Trial]) -> float:
    return max((trial.seen["after"] for trial in made), default=0.0)


def _late(after: float, most: float) -> list[str]:
    return [] if after < most else [f"it took {after:.1f} s to end"]


def interrupt(one: Repair, number: int, rng: np.random.Generator) -> tuple[bool, float, list[str]]:
    """Send a signal at a random time, and run the command that is printed.

    Returns:
        Whether there was one, how many seconds the run took to end, and what is wrong.
    """
    name = one.new()
    since, after = one.moment(rng)
    argv = [*one.argv, "-o", name]
    ended = one.runs.run(argv, one.folder, signals=[(after, number)], since=since, every_step=False)
    wrong: list[str] = []
    last = ended.err.strip().splitlines()[-1:]
    went_on = bool(last) and last[0].strip().endswith("--resume")
    if ended.code == 0:
        wrong += one.wrong(name, ended)
    elif ended.code != 128 + number:
        wrong.append(f"exit {ended.code}: {ended.err[-300:]}")
    elif went_on:
        again = one.runs.run(shlex.split(last[0])[1:], one.folder)
        wrong += one.wrong(name, again)
    else:
        if "error: interrupted" not in ended.err or one.checkpoints(name).exists():
            wrong.append(f"it does not say how to go on: {ended.err[-300:]}")
    one.remove(name)
    return went_on, ended.after, wrong


def _twice(seed: int, kept: Kept) -> Row:
    def trial(one: Repair, n: int) -> Trial:
        after, wrong = interrupted_twice(one, np.random.default_rng([seed, n]))
        wrong += _late(after, AT_ONCE)
        told = tuple(f"two SIGINT, number {n} of seed {seed}: {what}" for what in wrong)
        return Trial(told, {"after": round(after, 2)})

    with Runs() as runs, repair(runs, SEARCHES["de"]) as one:
        trials = {f"two SIGINT {n} {seed}": partial(trial, one, n) for n in range(NUMBER // 5)}
        made = kept.trials("signals", trials)
    told = f"exit 130 in {_slowest(made):.1f} s at most; goes on"
    return Row("a second SIGINT", len(made), told, tuple(wrong for trial in made for wrong in trial.wrong))


def interrupted_twice(one: Repair, rng: np.random.Generator) -> tuple[float, list[str]]:
    """Send two signals, one right after the other, and resume."""
    name = one.new()
    since = f"generation {rng.integers(one.generations // 2)}:"
    signals = [(0.0, signal.SIGINT), (float(rng.uniform(0.0, 0.02)), signal.SIGINT)]
    ended = one.runs.run([*one.argv, "-o", name], one.folder, signals=signals, since=since)
    wrong = [] if ended.code == 128 + signal.SIGINT else [f"exit {ended.code}: {ended.err[-300:]}"]
    wrong += one.wrong(name, one.resume(name))
    one.remove(name)
    return ended.after, wrong
