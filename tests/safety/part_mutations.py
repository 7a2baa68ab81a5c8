"""Random mutations of valid files: an error or a normal run; with the expected hash of the file, never a run."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from tests.safety.rows import Row
from tests.safety.running import Outcome, Servers
from tests.safety.seeds import SEEDS, Seed

ORDER = 2
LASTING = "ARACHNE_SAFETY_SECONDS"
"""The environment variable that says how many seconds mutations go on; `--seconds` sets it."""

EACH = 100
"""Mutations of each seed; fewer where the environment variable `ARACHNE_SAFETY_EACH` says so."""


def run(seed: int, jobs: int) -> Iterator[Row]:
    each = int(os.environ.get("ARACHNE_SAFETY_EACH", EACH))
    starts = _wanted()
    parts = _for_a_while(starts, seed, jobs) if LASTING in os.environ else _each(starts, seed, jobs, each)
    outcomes = [outcome for part in parts for outcome in part]
    refused = sum(outcome.code != 0 for outcome in outcomes)
    slowest = max(outcome.processor for outcome in outcomes)
    told = f"{refused:,} refused, {len(outcomes) - refused:,} ran as ever; slowest {slowest:.1f} s"
    failures = [
        f"{start.name} number {number} of seed {seed}: {'; '.join(outcome.wrong())} ({outcome.err.strip()[-300:]!r})"
        for start, part in zip(starts, parts, strict=True)
        for number, outcome in enumerate(part)
        if outcome.wrong()
    ]
    yield Row("random mutations of valid files", len(outcomes), told, tuple(failures))
    if LASTING not in os.environ:
        yield _expected(seed, each, jobs)


def _wanted() -> list[Seed]:
    """All seeds, or those whose name or kind has what `ARACHNE_SAFETY_ONLY` says in it."""
    only = os.environ.get("ARACHNE_SAFETY_ONLY", "")
    return [start for start in SEEDS if only in f"{start.name} {start.kind}"]


def _each(starts: list[Seed], seed: int, jobs: int, each: int) -> list[list[Outcome]]:
    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(lambda start: _of(start, each, seed), starts))


def _for_a_while(starts: list[Seed], seed: int, jobs: int) -> list[list[Outcome]]:
    """One mutation of each seed after the other, again and again until the time is up."""
    ends = time.monotonic() + float(os.environ[LASTING])
    groups = [starts[job::jobs] for job in range(jobs)]

    def some(group: list[Seed]) -> list[list[Outcome]]:
        found: list[list[Outcome]] = [[] for _ in group]
        with Servers() as servers:
            while time.monotonic() < ends:
                for number, start in enumerate(group):
                    found[number].append(one(servers, start, len(found[number]), seed))
        return found

    with ThreadPoolExecutor(jobs) as pool:
        grouped = list(pool.map(some, groups))
    return [grouped[number % jobs][number // jobs] for number in range(len(starts))]


def _expected(seed: int, each: int, jobs: int) -> Row:
    """The same with the hash of the file as it was: none is accepted."""
    starts = [start for start in SEEDS if start.is_input]
    with ThreadPoolExecutor(jobs) as pool:
        parts = list(pool.map(lambda start: _of(start, each, seed, expected=True), starts))
    failures = [
        f"{start.name} number {number} of seed {seed}: {'; '.join(outcome.wrong_for((3,)))}"
        for start, part in zip(starts, parts, strict=True)
        for number, outcome in enumerate(part)
        if outcome.wrong_for((3,))
    ]
    told = f"{sum(map(len, parts)) - len(failures):,} refused"
    return Row("the same with `--expect-sha256`", sum(map(len, parts)), told, tuple(failures))


def _of(start: Seed, number: int, seed: int, *, expected: bool = False) -> list[Outcome]:
    with Servers() as servers:
        return [one(servers, start, n, seed, expected=expected) for n in range(number)]


def one(servers: Servers, start: Seed, number: int, seed: int, *, expected: bool = False) -> Outcome:
    """Run a seed's command on its file with the changes of this number; the number -1 stands for no change.

    Args:
        servers: Where to run it.
        start: The seed.
        number: Which mutation.
        seed: Seed of all mutations.
        expected: Whether the command is told which hash the file should have.
    """
    work = servers.prepared(start)
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
