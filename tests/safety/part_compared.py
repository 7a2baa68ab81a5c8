"""SIGKILL at random times of a comparison, then `--resume`: the same rows as one that was left alone."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from tests.safety.compared import Compared, run_comparison
from tests.safety.kept import Kept, Trial
from tests.safety.rows import Row
from tests.safety.runs import Runs

ORDER = 23
NUMBER = 30


def run(seed: int, jobs: int, kept: Kept) -> Iterator[Row]:
    with Runs() as runs, run_comparison(runs) as one:
        made = kept.trials("compared", {f"{n} {seed}": partial(_trial, one, seed, n) for n in range(NUMBER)})
    told = f"the same rows {len(made)} times; {sum(trial.seen['kept'] for trial in made)} with a checkpoint on the disk"
    failures = tuple(wrong for trial in made for wrong in trial.wrong)
    yield Row("SIGKILL at random times of `compare`, then resume", len(made), told, failures)


def _trial(one: Compared, seed: int, number: int) -> Trial:
    on_disk, wrong = one.kill_and_resume(np.random.default_rng([seed, number]))
    return Trial(tuple(f"number {number} of seed {seed}: {what}" for what in wrong), {"kept": on_disk})
