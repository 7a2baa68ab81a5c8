"""SIGKILL at random times, then `--resume`: patch, history and model are those of a run that was left alone."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

from tests.safety.kept import Kept, Trial
from tests.safety.resumed import SEARCHES, Repair, repair
from tests.safety.rows import Row
from tests.safety.runs import Ended, Runs

ORDER = 20
NUMBER = 100
MOST = 4
"""How often one run is killed at most."""


def run(seed: int, jobs: int, kept: Kept) -> Iterator[Row]:
    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(lambda search: _row(search, seed, kept), SEARCHES)


def _row(search: str, seed: int, kept: Kept) -> Row:
    with Runs() as runs, repair(runs, SEARCHES[search]) as one:
        trials = [partial(_trial, one, search, seed, number) for number in range(NUMBER)]
        made = kept.trials("kills", {f"{search} {n} {seed}": trial for n, trial in enumerate(trials)})
    kills, on_disk = (sum(trial.seen[name] for trial in made) for name in ("kills", "kept"))
    same = sum(not trial.wrong for trial in made)
    told = f"byte-identical {same} of {len(made)}; {kills} kills, {on_disk} with a checkpoint on the disk"
    failures = tuple(wrong for trial in made for wrong in trial.wrong)
    return Row(f"SIGKILL at random times, then resume: {search}", len(made), told, failures)


def _trial(one: Repair, search: str, seed: int, number: int) -> Trial:
    rng = np.random.default_rng([seed, number, *search.encode()])
    kills, on_disk, wrong = killed_and_resumed(one, rng)
    told = tuple(f"{search} number {number} of seed {seed}: {what}" for what in wrong)
    return Trial(told, {"kills": kills, "kept": on_disk})


def killed_and_resumed(one: Repair, rng: np.random.Generator) -> tuple[int, int, list[str]]:
    """Kill a run, perhaps more than once, and resume it to its end.

    Returns:
        How often it was killed, how often a checkpoint was there afterwards, and what is wrong.
    """
    name, kills, kept = one.new(), 0, 0
    ended: Ended | None = None
    for _ in range(int(rng.integers(1, MOST + 1))):
        resume = ["--resume"] if kills else []
        since, after = one.moment(rng)
        signals = [(after, signal.SIGKILL)]
        ended = one.runs.run([*one.argv, "-o", name, *resume], one.folder, signals=signals, since=since)
        if ended.code != -signal.SIGKILL:
            break
        kills += 1
        kept += bool(list(one.checkpoints(name).glob("search-*.npz")))
        if (one.folder / name).exists():
            break
    if not (one.folder / name).exists():  # killed behind its work, while it told of it, it is done
        ended = one.resume(name)
    wrong = one.wrong(name, ended)
    one.remove(name)
    return kills, kept, wrong
