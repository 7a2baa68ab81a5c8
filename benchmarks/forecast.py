"""Forecasts beside what repairs of the study came to, for the faults the rule was decided on and those that judge it.

    python -m benchmarks.forecast              # forecasts of every fault whose network is trained, and the table
    python -m benchmarks.forecast --again      # make them anew

A forecast sees the inputs that the repair saw (`examples/study/results/budgets`, searcher auto), and is compared with
what the chosen patch repaired on the other half, both as means over the seeds. The forecasts are kept in
`benchmarks/results/forecast.json`.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import numpy as np
import torch

from arachne.data.run import whole_part
from arachne.evidence.forecast import BUDGETS, forecast
from arachne.scoring.tail_cache import run_and_keep
from benchmarks.causes import RESULTS
from examples.study.cases import Case, cases
from examples.study.faults import DECIDE, JUDGE
from examples.study.poisoning import halves
from examples.study.runs import RESULTS as RUNS
from examples.study.runs import read_run, run_path

SEEDS = 3
NEAR = 0.1


def measure(case: Case) -> dict[str, Any] | None:
    """Forecast and outcome of one fault; None if it was never repaired."""
    backend, data = case.open()
    forecasts, outcomes, seconds = [], [], 0.0
    for seed in range(SEEDS):
        path = run_path(RUNS, case.name, seed, "auto")
        if not path.is_file():
            continue
        rows = {row.budget: row for row in read_run(path).rows if row.searcher == "auto"}
        part = whole_part(backend, halves(data, seed)[0], case.target, run=lambda one: run_and_keep(backend, one))
        start = time.process_time()
        found = forecast(backend, part)
        seconds = max(seconds, time.process_time() - start)
        if found is not None and len(rows) == len(BUDGETS):
            forecasts.append(found.reach)
            outcomes.append([rows[budget].repaired / max(1, rows[budget].negatives) for budget in BUDGETS])
    if not forecasts:
        return None
    told, came = (np.mean(several, axis=0).round(4).tolist() for several in (forecasts, outcomes))
    return {"part": case.part, "forecast": told, "outcome": came, "seeds": len(forecasts), "seconds": round(seconds, 3)}


def show(known: dict[str, dict[str, Any]]) -> None:
    """A line for each fault, and how many forecasts are near."""
    for part in (DECIDE, JUDGE):
        rows = {name: row for name, row in known.items() if row["part"] == part}
        budgets = " | ".join(f"{100 * budget:g} %" for budget in BUDGETS)
        print(f"\n| faults that {part} | {budgets} | seeds | processor s |\n|---|{'---|' * len(BUDGETS)}---:|---:|")
        for name, row in rows.items():
            pairs = [f"{told:.2f} ({came:.2f})" for told, came in zip(row["forecast"], row["outcome"], strict=True)]
            print(f"| {name} | {' | '.join(pairs)} | {row['seeds']} | {row['seconds']:.2f} |")
        apart = np.array([np.subtract(row["forecast"], row["outcome"]) for row in rows.values()])
        if len(apart):
            near = ", ".join(
                f"{int(count)} of {len(apart)} at {100 * budget:g} %"
                for count, budget in zip((np.abs(apart) <= NEAR + 1e-9).sum(axis=0), BUDGETS, strict=True)
            )
            print(f"\nwithin {NEAR}: {near}; mean difference {', '.join(f'{one:+.2f}' for one in apart.mean(axis=0))}")


def main() -> None:
    """Make the forecasts that are missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--again", action="store_true", help="Make known forecasts anew.")
    parser.add_argument("--only", default="", metavar="PREFIX", help="Faults whose names begin so.")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    file = RESULTS / "forecast.json"
    known: dict[str, dict[str, Any]] = json.loads(file.read_text("utf-8")) if file.is_file() else {}
    for case in cases((DECIDE, JUDGE)):
        if case.name.startswith(arguments.only) and (arguments.again or case.name not in known):
            row = measure(case)
            if row is not None:
                known[case.name] = row
                file.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    show(dict(sorted(known.items())))


if __name__ == "__main__":
    main()
