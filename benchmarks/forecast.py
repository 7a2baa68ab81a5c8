"""Forecasts beside what repairs of the study came to, for the faults the rule was decided on and those that judge it.

    python -m benchmarks.forecast              # forecasts of every fault that was repaired, and the table
    python -m benchmarks.forecast --print      # the table alone

A forecast is that of the default search, whose quick members run here, on the inputs that the repair saw. It is
compared with what the chosen patch repaired on the other half: on judging faults from
`examples/study/results/present`, on deciding ones from
`benchmarks/results/choosing.json`. Both are means over the seeds. Forecasts are kept in
`benchmarks/results/forecast.json`.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import numpy as np
import torch

import arachne
from arachne.errors import NothingWithinBudgetError
from arachne.evidence.forecast import BUDGETS, Forecast
from arachne.search.pool import QUICK
from benchmarks.causes import RESULTS
from benchmarks.choosing import FILE as CHOOSING
from examples.study.budgets import AUTO, DEFAULT_BUDGET, RECIPES
from examples.study.cases import Case, cases
from examples.study.faults import DECIDE, JUDGE
from examples.study.poisoning import halves
from examples.study.report import PRESENT
from examples.study.runs import RESULTS as RUNS
from examples.study.runs import read_run, run_path

SEEDS = 1
NEAR = 0.1


def measure(case: Case) -> dict[str, Any] | None:
    """Forecast and outcome of one fault; None if it was never repaired by today's search."""
    forecasts, outcomes, seconds = [], [], 0.0
    for seed in range(SEEDS):
        came = find_outcome(case, seed)
        if came is None:
            continue
        start = time.process_time()
        told = find_forecast(case, seed)
        seconds = max(seconds, time.process_time() - start)
        if told is not None:
            forecasts.append(told.reach)
            outcomes.append(came)
    if not forecasts:
        return None
    told_mean, came_mean = (np.mean(several, axis=0).round(4).tolist() for several in (forecasts, outcomes))
    counts = {"seeds": len(forecasts), "seconds": round(seconds, 3)}
    return {"part": case.part, "forecast": told_mean, "outcome": came_mean, **counts}


def find_outcome(case: Case, seed: int) -> list[float] | None:
    """Return the share of held-out negatives that a repair put right, by budget; None if there was none."""
    if case.part == DECIDE:
        known = json.loads(CHOOSING.read_text("utf-8")) if CHOOSING.is_file() else {}
        rows = known.get(f"{case.name}.{seed}", {"rows": []})["rows"]
        held = {row["budget"]: row.get("held_out", (0.0, 0.0))[0] for row in rows if row["rule"] == "luck"}
        return [held[budget] for budget in BUDGETS] if held else None
    path = run_path(RUNS.parent / PRESENT, case.name, seed, AUTO)
    if not path.is_file() or read_run(path).made_with["recipe"] != RECIPES[AUTO]:
        return None
    own = {row.budget: row for row in read_run(path).rows if row.searcher == AUTO}
    return [own[budget].repaired / max(1, own[budget].negatives) for budget in BUDGETS]


def find_forecast(case: Case, seed: int) -> Forecast | None:
    """The forecast of the default search, from its quick members alone."""
    backend, data = case.open()
    seen, held_out = halves(data, seed)
    searcher = arachne.Pool(members=QUICK)
    settings = arachne.Settings(seed=seed, drop_overlap=True, searcher=searcher, budget=arachne.Budget(DEFAULT_BUDGET))
    try:
        result: arachne.RepairResult = arachne.repair(backend, seen, case.target, holdout=held_out, settings=settings)
    except NothingWithinBudgetError as error:
        result = error.result
    return result.forecast


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
    parser.add_argument("--print", action="store_true", help="Forecast nothing.")
    parser.add_argument("--only", default="", metavar="PREFIX", help="Faults whose names begin so.")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    file = RESULTS / "forecast.json"
    known: dict[str, dict[str, Any]] = json.loads(file.read_text("utf-8")) if file.is_file() else {}
    for case in () if arguments.print else cases((DECIDE, JUDGE)):
        if case.name.startswith(arguments.only) and case.name not in known:
            row = measure(case)
            if row is not None:
                known[case.name] = row
                file.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    show(dict(sorted(known.items())))


if __name__ == "__main__":
    main()
