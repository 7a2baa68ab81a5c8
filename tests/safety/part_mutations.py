"""Random mutations of valid files: an error or a normal run; with the expected hash of the file, never a run."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from tests.safety.mutations import mutated
from tests.safety.rows import Row
from tests.safety.running import Outcome, Servers
from tests.safety.seeds import SEEDS, Seed

ORDER = 2
EACH = 100
"""Mutations of each seed; fewer where the environment variable `ARACHNE_SAFETY_EACH` says so."""


def run(seed: int, jobs: int) -> Iterator[Row]:
    each = int(os.environ.get("ARACHNE_SAFETY_EACH", EACH))
    with ThreadPoolExecutor(jobs) as pool:
        parts = list(pool.map(lambda start: _of(start, each, seed), SEEDS))
    outcomes = [outcome for part in parts for outcome in part]
    refused = sum(outcome.code != 0 for outcome in outcomes)
    slowest = max(outcome.processor for outcome in outcomes)
    told = f"{refused:,} refused, {len(outcomes) - refused:,} ran as ever; slowest {slowest:.1f} s"
    failures = [
        f"{start.name} number {number} of seed {seed}: {'; '.join(outcome.wrong())} ({outcome.err.strip()[-300:]!r})"
        for start, part in zip(SEEDS, parts, strict=True)
        for number, outcome in enumerate(part)
        if outcome.wrong()
    ]
    yield Row("random mutations of valid files", len(outcomes), told, tuple(failures))
    yield _expected(seed, each, jobs)


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
            file.write_bytes(mutated(file.read_bytes(), rng))
        return servers.command(argv, work, start.server)
    finally:
        shutil.rmtree(work, ignore_errors=True)
