"""How much sooner a default repair ends on two processors than on one, with the same patch.

    python -m benchmarks.cores                  every network that has no result yet
    python -m benchmarks.cores FM signs         these, measured anew
    python -m benchmarks.cores --print          the table

Each network is repaired in turns by processes that may use one processor, and two (`sched_setaffinity`); the least time
of each counts, because what else the machine does only adds to it. Loading frameworks, and making the network, do not
count. Networks are those of `benchmarks.subjects` and `benchmarks.rows`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results" / "cores.json"

NETWORKS = {
    "FM": "FM dense, 10,000 inputs",
    "signs": "traffic signs, conv16 + fc512",
    "biasfield": "CIFAR-10, two convolutions, 5,000 inputs",
    "two-torch": "Fashion-MNIST, two outputs, module",
    "normed": "traffic signs 48², batch norm",
    "bert": "BERT, 2 layers of 64, 1,600 tweets",
}
"""The networks by name; all but the first are rows of `benchmarks.rows`."""

TIMES, WANTED = 3, 1.6


def main() -> None:
    """Measure what is asked for, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cores", description=__doc__)
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help=", ".join(NETWORKS))
    parser.add_argument("--print", action="store_true", dest="only_print", help="measure nothing")
    parser.add_argument("--one", metavar="NETWORK", help="measure one network here, on the processors there are")
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(measure(asked.one)))
        return
    known = read()
    for name in [] if asked.only_print else asked.networks or [one for one in NETWORKS if one not in known]:
        runs = [compare(name) for _ in range(TIMES)]
        known[name] = {
            "one": min(one["clock"] for one, _ in runs),
            "two": min(two["clock"] for _, two in runs),
            "processor_one": min(one["processor"] for one, _ in runs),
            "processor_two": min(two["processor"] for _, two in runs),
            "same": len({run["patch"] for pair in runs for run in pair}) == 1,
            "load": max(run["load"] for pair in runs for run in pair),
        }
        RESULTS.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    print_table(known)


def compare(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Repair on one processor, and on two."""
    found, own = [], [sys.executable, "-m", "benchmarks.cores", "--one", name]
    for count in (1, 2):
        allowed = ",".join(map(str, sorted(os.sched_getaffinity(0))[:count]))
        done = subprocess.run(["taskset", "-c", allowed, *own], check=True, stdout=subprocess.PIPE, text=True)
        found.append(json.loads(done.stdout.splitlines()[-1]))
    return found[0], found[1]


def measure(name: str) -> dict[str, Any]:
    """Repair in this process; return seconds by the clock and of processors, and a hash of the patch."""
    import torch

    import arachne
    from arachne.errors import NothingWithinBudgetError
    from benchmarks.rows.__main__ import processor_seconds
    from benchmarks.rows.networks import REPAIRS
    from benchmarks.subjects import SUBJECTS, make_subject

    torch.set_num_threads(1)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        if name in REPAIRS:
            network, data = REPAIRS[name].make(Path(folder))
        else:
            network, data = make_subject(next(one for one in SUBJECTS if one.name == "FM MLP"), 10_000)
        clock, used = time.perf_counter(), processor_seconds()
        try:
            result = arachne.repair(network, data, "top:1", seed=0)
        except NothingWithinBudgetError as error:  # it has run to its end all the same
            result = error.result
        taken = time.perf_counter() - clock, processor_seconds() - used
    patch = hashlib.sha256(" ".join(map(str, result.patch.entries)).encode()).hexdigest()
    return {
        "clock": round(taken[0], 2),
        "processor": round(taken[1], 2),
        "patch": patch[:16],
        "load": round(os.getloadavg()[0], 1),
    }


def print_table(known: dict[str, Any]) -> None:
    """Print seconds by the clock, and how much sooner two processors end."""
    print(f"| repair | one processor | two | sooner (≥ {WANTED} × wanted) | processor time | the same patch |")
    print("|---|---|---|---|---|---|")
    for name, row in known.items():
        print(
            f"| {NETWORKS[name]} | {row['one']:.1f} s | {row['two']:.1f} s | {row['one'] / row['two']:.2f} × | "
            f"{row['processor_one']:.1f} → {row['processor_two']:.1f} s | {'yes' if row['same'] else 'NO'} |"
        )


def read() -> dict[str, Any]:
    """Return all results so far, by network."""
    found: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    return found


if __name__ == "__main__":
    main()
