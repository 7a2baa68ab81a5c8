"""Repairs from ten inputs that show a planted fault: all a user may have when a fault has just been noticed.

    python -m benchmarks.few_negatives             # every planted fault whose network is trained, and the table
    python -m benchmarks.few_negatives --print     # the table alone

Of the seen half ten misread inputs with the fault stay, drawn anew for each draw, and no others with it; the other half
counts what the default repair does within 0.5 %. Rows are kept in `benchmarks/results/few_negatives.json`.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np
import torch

import arachne
from arachne.errors import NothingWithinBudgetError
from benchmarks.causes import RESULTS
from examples.study.cases import CONFUSION, Case, cases
from examples.study.faults import DECIDE, JUDGE
from examples.study.poisoning import halves

FILE = RESULTS / "few_negatives.json"
NEGATIVES, BUDGET = 10, 0.005


def measure(case: Case, draw: int) -> dict[str, Any]:
    """Repair from ten negatives; return what was repaired and broken of the other half."""
    backend, data = case.open()
    seen, held_out = halves(data, draw)
    planted = seen.columns["planted"] == "yes"
    misread = np.flatnonzero(planted & (backend.predict(seen.inputs) != seen.labels))
    few = np.random.default_rng(draw).choice(misread, NEGATIVES, replace=False)
    kept = np.sort(np.concatenate([np.flatnonzero(~planted), few]))
    settings = arachne.Settings(seed=draw, drop_overlap=True, budget=arachne.Budget(BUDGET))
    row: dict[str, Any] = {"part": case.part, "made_by": None, "repaired": 0.0, "broken": 0.0}
    try:
        result = arachne.repair(backend, seen.take(kept), case.target, holdout=held_out, settings=settings)
    except NothingWithinBudgetError:
        return row
    rates = result.evidence.held_out
    found = {"repaired": round(rates.repair.value, 4), "broken": round(rates.breakage.value, 6)}
    return {**row, **found, "made_by": result.search.candidate.made_by}


def show(known: dict[str, dict[str, Any]]) -> None:
    """A line for each fault, means over draws, and the mean over faults."""
    print("| fault | draws | repaired | broken, % | made by |\n|---|---:|---:|---:|---|")
    means = []
    for name in sorted({key.rpartition(".")[0] for key in known}):
        own = [row for key, row in known.items() if key.rpartition(".")[0] == name]
        mean = [float(np.mean([row[what] for row in own])) for what in ("repaired", "broken")]
        makers = ", ".join(dict.fromkeys(str(row["made_by"]) for row in own))
        print(f"| {name} | {len(own)} | {mean[0]:.2f} | {100 * mean[1]:.2f} | {makers} |")
        means.append(mean)
    if means:
        repaired, broken = np.mean(means, axis=0)
        kept = sum(row["broken"] <= BUDGET for row in known.values())
        print(f"\n{len(means)} faults: {repaired:.2f} @ {100 * broken:.2f} %; kept in {kept} of {len(known)} runs")


def main() -> None:
    """Repair what has no row yet, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="PREFIX", help="Faults whose names begin so.")
    parser.add_argument("--draws", type=int, default=2, help="How many, from 0 on.")
    parser.add_argument("--print", action="store_true", help="Repair nothing.")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    known: dict[str, dict[str, Any]] = json.loads(FILE.read_text("utf-8")) if FILE.is_file() else {}
    planted = [
        case for case in cases((DECIDE, JUDGE)) if case.kind != CONFUSION and case.name.startswith(arguments.only)
    ]
    for draw in range(0 if arguments.print else arguments.draws):
        for case in planted:
            if f"{case.name}.{draw}" not in known:
                known[f"{case.name}.{draw}"] = measure(case, draw)
                FILE.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    show(known)


if __name__ == "__main__":
    main()
