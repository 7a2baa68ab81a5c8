"""Repairs that once took minutes: processor time, clock and memory of each.

    python -m benchmarks.rows                   every row that has no result yet
    python -m benchmarks.rows bert signs        these, measured anew
    python -m benchmarks.rows --print           the table

Each default repair runs in a process of its own; making and training the network does not count. Results go to
`benchmarks/results/rows.json` as soon as they are there, so a run can be stopped and gone on with.
"""

from __future__ import annotations

import argparse
import json
import os
import pstats
import resource
import subprocess
import sys
import tempfile
import time
from cProfile import Profile
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent.parent / "results" / "rows.json"


def main() -> None:
    """Measure what is asked for, and print the table."""
    from benchmarks.rows.networks import REPAIRS

    parser = argparse.ArgumentParser(prog="python -m benchmarks.rows", description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=", ".join(REPAIRS))
    parser.add_argument("--print", action="store_true", dest="only_print", help="measure nothing")
    parser.add_argument("--one", metavar="ROW", help="measure one row here, and print it")
    parser.add_argument("--profile", action="store_true", help="with --one: tell which functions take the time")
    parser.add_argument("--most", type=float, metavar="SECONDS", help="stop a row after so long by the clock")
    parser.add_argument("--results", type=Path, default=RESULTS)
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(measure(asked.one, profile=asked.profile)))
        return
    for name in [] if asked.only_print else asked.rows or [one for one in REPAIRS if one not in read(asked.results)]:
        command = [sys.executable, "-m", "benchmarks.rows", "--one", name]
        try:
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=asked.most)
        except subprocess.TimeoutExpired:
            print(f"{name}: stopped after {asked.most:,.0f} s by the clock", file=sys.stderr)
            continue
        found = {**read(asked.results), name: json.loads(done.stdout.splitlines()[-1])}
        asked.results.write_text(json.dumps(dict(sorted(found.items())), indent=1) + "\n", encoding="utf-8")
    print_table(read(asked.results))


def measure(name: str, *, profile: bool = False) -> dict[str, Any]:
    """Repair in this process, and return times, memory and outcome."""
    import torch

    import arachne
    from arachne.errors import NothingWithinBudgetError
    from arachne.localise import Contrast
    from benchmarks.real_sizes.localising import memory, settle_memory
    from benchmarks.rows.networks import REPAIRS

    torch.set_num_threads(1)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        network, data = REPAIRS[name].make(Path(folder))
        before, clock, used = settle_memory(), time.perf_counter(), processor_seconds()
        profiler = Profile(time.process_time)
        if profile:
            profiler.enable()
        try:
            where = Contrast(exclude=REPAIRS[name].excluded)
            result = arachne.repair(
                network, data, "top:1", seed=0, localiser=where, on_step=lambda step: say(step, used)
            )
        except NothingWithinBudgetError as error:  # it has run to its end all the same
            result = error.result
        profiler.disable()
        seconds, elapsed = processor_seconds() - used, time.perf_counter() - clock
    if profile:
        pstats.Stats(profiler, stream=sys.stderr).sort_stats("tottime").print_stats(25)
        pstats.Stats(profiler, stream=sys.stderr).sort_stats("cumtime").print_stats(60)
    inputs = data.inputs if hasattr(data.inputs, "values") else {"": data.inputs}
    return {
        "processor_seconds": round(seconds, 1),
        "elapsed_seconds": round(elapsed, 1),
        "load": round(os.getloadavg()[0], 1),
        "steps": {step: round(own, 1) for step, own in result.seconds.items()},
        "peak_megabytes": round((memory("VmHWM") - before) / 1e6),
        "input_megabytes": round(sum(one.nbytes for one in inputs.values()) / 1e6, 1),
        "seen": len(result.split.seen) + len(result.split.choose),
        "repaired": str(result.evidence).splitlines()[0],
    }


def say(step: str, used: float) -> None:
    """Tell how far a long row has come."""
    print(f"{time.strftime('%H:%M:%S')} {processor_seconds() - used:6.1f} s {step}", file=sys.stderr, flush=True)


def processor_seconds() -> float:
    """Return the processor time of this process and its children so far."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in both)


def print_table(results: dict[str, Any]) -> None:
    """Print what was measured against what was wanted."""
    from benchmarks.rows.networks import REPAIRS

    print("| repair | before | processor time | wanted | clock | peak / inputs, MB | wanted |")
    print("|---|---|---|---|---|---|---|")
    for name, row in REPAIRS.items():
        if name in results:
            own = results[name]
            clock = " by the clock" if row.by_clock else ""
            before = "" if row.before is None else f"{row.before:g} s"
            size = "" if row.wanted_bytes is None else f"≤ {row.wanted_bytes / 1e6:,.0f}"
            print(
                f"| {row.title} | {before} | {own['processor_seconds']} s | ≤ {row.wanted:g} s{clock} | "
                f"{own['elapsed_seconds']} s | {own['peak_megabytes']:,} / {own['input_megabytes']:,} | {size} |"
            )
    if {"two-torch", "two-onnx"} <= results.keys():
        times = sorted(results[name]["processor_seconds"] for name in ("two-torch", "two-onnx"))
        print(f"\nThe network with two outputs in PyTorch and ONNX: {times[1] / times[0]:.2f} × (≤ 1.5 × wanted)")


def read(path: Path) -> dict[str, Any]:
    """Return all results so far."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found


if __name__ == "__main__":
    main()
