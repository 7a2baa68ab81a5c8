"""Random mutations of valid files: an error or a normal run; with the expected hash of the file, never a run."""

from __future__ import annotations

import hashlib
import itertools
import os
import shutil
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from tests.safety.kept import Kept, Trial
from tests.safety.rows import Row
from tests.safety.running import Outcome, Servers
from tests.safety.seeds import SEEDS, Seed

ORDER = 2

EACH = 100
"""Mutations of each seed; fewer where the environment variable `ARACHNE_SAFETY_EACH` says so."""


def run(seed: int, jobs: int, kept: Kept) -> Iterator[Row]:
    yield from _rows(_wanted_seeds(), seed, jobs, kept, expected=False)
    if not kept.over():
        yield from _rows([start for start in _wanted_seeds() if start.is_input], seed, jobs, kept, expected=True)


def _wanted_seeds() -> list[Seed]:
    """All seeds, or those whose name or kind has what `ARACHNE_SAFETY_ONLY` says in it."""
    only = os.environ.get("ARACHNE_SAFETY_ONLY", "")
    return [start for start in SEEDS if only in f"{start.name} {start.kind}"]


def _rows(starts: list[Seed], seed: int, jobs: int, kept: Kept, *, expected: bool) -> Iterator[Row]:
    """A row for each kind of file, and one for all."""
    groups = [starts[job::jobs] for job in range(jobs)]
    with ThreadPoolExecutor(jobs) as pool:
        parts = list(pool.map(lambda group: _some(group, seed, kept, expected=expected), groups))
    kinds: dict[str, list[Trial]] = defaultdict(list)
    for start, trials in sorted(itertools.chain(*parts), key=lambda one: one[0].kind):
        kinds[start.kind] += trials
    what = "mutations with `--expect-sha256`" if expected else "mutations"
    for kind, trials in kinds.items():
        yield _row(f"{what}: {kind}", trials)
    everything = _row(f"{what}, all kinds", [trial for trials in kinds.values() for trial in trials])
    yield Row(everything.attack, everything.number, everything.outcome)


def _row(attack: str, trials: list[Trial]) -> Row:
    refused = sum(trial.seen["code"] != 0 for trial in trials)
    slowest = max((trial.seen["processor"] for trial in trials), default=0.0)
    told = f"{refused:,} refused, {len(trials) - refused:,} ran as ever; slowest {slowest:.1f} s"
    return Row(attack, len(trials), told, tuple(wrong for trial in trials for wrong in trial.wrong))


def _some(group: list[Seed], seed: int, kept: Kept, *, expected: bool) -> list[tuple[Seed, list[Trial]]]:
    """One mutation of each seed after the other, again and again: a number of times, or until the time is up."""
    each = int(os.environ.get("ARACHNE_SAFETY_EACH", EACH))
    endless = kept.is_limited and not expected and "ARACHNE_SAFETY_EACH" not in os.environ
    found: list[list[Trial]] = [[] for _ in group]
    with Servers() as servers:
        for number in itertools.count():
            if not group or (number >= each and not endless):
                break
            before = sum(map(len, found))
            for start, trials in zip(group, found, strict=True):
                trial = _trial(servers, start, number, seed, kept, expected=expected)
                trials += [] if trial is None else [trial]
            if sum(map(len, found)) == before:
                break
    return list(zip(group, found, strict=True))


def _trial(servers: Servers, start: Seed, number: int, seed: int, kept: Kept, *, expected: bool) -> Trial | None:
    def attempt() -> Trial:
        outcome = one(servers, start, number, seed, expected=expected)
        wrong = outcome.wrong_for((3,), timed=True) if expected else outcome.wrong()
        seen = {"code": outcome.code, "processor": round(outcome.processor, 2), "memory": outcome.memory >> 20}
        name = f"{start.name} number {number} of seed {seed}"
        return Trial((f"{name}: {'; '.join(wrong)} ({outcome.err.strip()[-300:]!r})",) if wrong else (), seen)

    part = "mutations, expected" if expected else "mutations"
    return kept.trial(part, f"{start.name} {number} {seed}", attempt)


def one(servers: Servers, start: Seed, number: int, seed: int, *, expected: bool = False) -> Outcome:
    """Run a seed's command on its file with the changes of this number; the number -1 stands for no change.

    Args:
        servers: Where to run it.
        start: The seed.
        number: Which mutation.
        seed: Seed of all mutations.
        expected: Whether the command is told which hash the file should have.
    """
    work = servers.prepare(start)
    try:
        name = (work / "file").read_text()
        file = work / "case" / name
        argv = list(start.argv)
        if expected:
            argv += ["--expect-sha256", f"{name}={hashlib.sha256(file.read_bytes()).hexdigest()}"]
        if number >= 0:
            rng = np.random.default_rng([seed, number, *start.name.encode()])
            file.write_bytes(start.change(file.read_bytes(), rng))
        return servers.command(argv, work, start.server)
    finally:
        shutil.rmtree(work, ignore_errors=True)
