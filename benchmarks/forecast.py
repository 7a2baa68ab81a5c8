"""Forecasts beside what repairs of the study came to, for the faults the rule was decided on and those that judge it.

    python -m benchmarks.forecast              # forecasts of every fault whose network is trained, and the table
    python -m benchmarks.forecast --print      # the table alone

A forecast is that of the default search, whose quick members run here, on the inputs that the repair saw. It is
compared with what the chosen patch repaired on the other half: on judging faults as the runs in
`examples/study/results/present` have it, on deciding ones as `benchmarks/results/choosing.json` has. Both are means
over the seeds. Forecasts are kept in `benchmarks/results/forecast.json`; faults without such a run are left out.
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
    """Forecasts of one fault; None if there is nothing to tell."""
    forecasts, seconds = [], 0.0
    for seed in range(SEEDS):
        start = time.process_time()
        told = find_forecast(case, seed)
        seconds = max(seconds, time.process_time() - start)
        forecasts += [] if told is None else [told.reach]
    if not forecasts:
        return None
    mean = np.mean(forecasts, axis=0).round(4).tolist()
    return {"part": case.part, "forecast": mean, "seeds": len(forecasts), "seconds": round(seconds, 3)}


def find_outcome(name: str, part: str, seed: int) -> list[float] | None:
    """Return the share of held-out negatives that a repair put right, by budget; None if there was none."""
    if part == DECIDE:
        known = json.loads(CHOOSING.read_text("utf-8")) if CHOOSING.is_file() else {}
        rows = known.get(f"{name}.{seed}", {"rows": []})["rows"]
        held = {row["budget"]: row.get("held_out", (0.0, 0.0))[0] for row in rows if row["rule"] == "luck"}
        return [held[budget] for budget in BUDGETS] if held else None
    path = run_path(RUNS.parent / PRESENT, name, seed, AUTO)
    if not path.is_file() or read_run(path).made_with["recipe"] != RECIPES[AUTO]:
        return None
    own = {row.budget: row for row in read_run(path).rows if row.searcher == AUTO}
    return [own[budget].repaired / max(1, own[budget].negatives) for budget in BUDGETS]


def with_outcomes(known: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Put beside the forecasts what repairs came to, of faults that were repaired with every seed, by name."""
    found = {}
    for name, row in sorted(known.items()):
        came = [find_outcome(name, row["part"], seed) for seed in range(row["seeds"])]
        repaired = [one for one in came if one is not None]
        if len(repaired) == len(came):
            found[name] = {**row, "outcome": np.mean(repaired, axis=0).round(4).tolist()}
    return found


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
    compared = with_outcomes(known)
    show(compared)
    print(f"\nleft out, because no repair by the present default is recorded: {len(known) - len(compared)} faults")


if __name__ == "__main__":
    main()
