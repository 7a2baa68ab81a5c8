"""Random mutations of valid files: an error or a normal run, whatever the bytes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from tests.safety.rows import Row
from tests.safety.running import Outcome, Servers
from tests.safety.seeds import SEEDS, Seed

ORDER = 2
EACH = 100
"""Mutations of each seed."""


def run(seed: int, jobs: int) -> Iterator[Row]:
    with ThreadPoolExecutor(jobs) as pool:
        parts = list(pool.map(lambda start: _of(start, EACH, seed), SEEDS))
    outcomes = [outcome for part in parts for _, outcome in part]
    refused = sum(outcome.code != 0 for outcome in outcomes)
    slowest = max(outcome.processor for outcome in outcomes)
    told = f"{refused:,} refused, {len(outcomes) - refused:,} ran as ever; slowest {slowest:.1f} s"
    failures = [
        f"{start.name} number {number} of seed {seed}: {'; '.join(outcome.wrong())} ({outcome.err.strip()[-300:]!r})"
        for start, part in zip(SEEDS, parts, strict=True)
        for number, outcome in part
        if outcome.wrong()
    ]
    yield Row("random mutations of valid files", len(outcomes), told, tuple(failures))


def _of(start: Seed, number: int, seed: int) -> list[tuple[int, Outcome]]:
    with Servers() as servers:
        return [(n, one(servers, start, n, seed)) for n in range(number)]


def one(servers: Servers, start: Seed, number: int, seed: int) -> Outcome:
    """Run a seed's command on its file with the changes of this number; the number -1 stands for no change."""
    work = servers.prepared(start)
    try:
        file = work / "case" / (work / "file").read_text()
        if number >= 0:
            rng = np.random.default_rng([seed, number, *start.name.encode()])
            file.write_bytes(start.change(file.read_bytes(), rng))
        return servers.command(list(start.argv), work, start.server)
    finally:
        shutil.rmtree(work, ignore_errors=True)
