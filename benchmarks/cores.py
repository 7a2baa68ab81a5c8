"""Measure one repair with 1, 2 and 4 threads: clock, processor time, and whether the patch is the same.

    python -m benchmarks.cores                  a dense network on 10,000 pictures of Fashion-MNIST
    python -m benchmarks.cores --network "FM convnet" --exclude 7 9 --inputs 1000       steps through convolutions

All repairs run in this one run, in turns, and the least time of each counts. On an idle machine with two processors,
two threads should take at most 1 / 1.6 of the time of one.
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

import torch

import arachne
from arachne.errors import NothingWithinBudgetError
from arachne.search.ahead import THREADS
from arachne.settings import make_localiser
from benchmarks.subjects import SUBJECTS, make_subject

NUMBERS = (1, 2, 4)


def main() -> None:
    """Print a line for each number of threads."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cores", description=__doc__)
    parser.add_argument("--network", default="FM MLP", choices=[one.name for one in SUBJECTS])
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--exclude", nargs="*", default=[], metavar="LAYER")
    parser.add_argument("--times", type=int, default=3)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    network, data = make_subject(next(one for one in SUBJECTS if one.name == asked.network), asked.inputs)
    found: dict[int, list[tuple[float, float, str]]] = {number: [] for number in NUMBERS}
    for _ in range(asked.times):
        for number in NUMBERS:
            os.environ[THREADS] = str(number)
            found[number].append(repair(network, data, asked.exclude))
    one = min(found[1])[0]
    for number, runs in found.items():
        clock, used, patch = min(runs)
        same = "the same patch" if patch == found[1][0][2] else "ANOTHER PATCH"
        print(
            f"{asked.network}, {asked.inputs:,} inputs, {number} threads, load {os.getloadavg()[0]:.0f}: {clock:.1f} s "
            f"by the clock ({one / clock:.2f} x), {used:.1f} s of processor time, {same}"
        )


def repair(network: Any, data: Any, exclude: list[str]) -> tuple[float, float, str]:
    """Return seconds by the clock and of the processor, and the changes of the patch."""
    clock, used = time.perf_counter(), time.process_time()
    localiser = make_localiser("contrast", exclude=tuple(exclude))
    try:
        result = arachne.repair(network, data, "top:1", localiser=localiser, seed=0)
    except NothingWithinBudgetError as error:
        result = error.result
    return time.perf_counter() - clock, time.process_time() - used, " ".join(map(str, result.patch.entries))


if __name__ == "__main__":
    main()
