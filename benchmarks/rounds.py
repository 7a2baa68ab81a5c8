"""The command line of benchmarks that repair every fault several times, and keep a row of each in a file."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

Rows = dict[str, dict[str, Any]]


def measure_rounds(
    description: str | None,
    file: Path,
    rounds: tuple[str, int],
    faults: Callable[[str], Iterable[tuple[str, Callable[[int], dict[str, Any]]]]],
) -> Rows:
    """Measure what has no row in a file yet, as the command line asks, and return all rows.

    Args:
        description: What the benchmark does, for its help.
        file: The results, which are written after every row.
        rounds: The name of the option for the number of rounds, and how many there are without it.
        faults: From a prefix to the faults whose names begin so, each with what measures it in a round.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="PREFIX", help="Faults whose names begin so.")
    parser.add_argument(f"--{rounds[0]}", dest="rounds", type=int, default=rounds[1], help="How many, from 0 on.")
    parser.add_argument("--print", action="store_true", help="Repair nothing.")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    known: Rows = json.loads(file.read_text("utf-8")) if file.is_file() else {}
    for number in range(0 if arguments.print else arguments.rounds):
        for name, measure in faults(arguments.only):
            if f"{name}.{number}" not in known:
                known[f"{name}.{number}"] = measure(number)
                file.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return known
