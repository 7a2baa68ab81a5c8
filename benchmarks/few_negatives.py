"""Repairs from ten inputs that show a planted fault: all a user may have when a fault has just been noticed.

    python -m benchmarks.few_negatives             # every planted fault whose network is trained, and the table
    python -m benchmarks.few_negatives --print     # the table alone

Of the seen half ten misread inputs with the fault stay, drawn anew for each draw, and no others with it; the other half
counts what the default repair does within 0.5 %. Rows are kept in `benchmarks/results/few_negatives.json`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

import arachne
from arachne.errors import NothingWithinBudgetError
from benchmarks.causes import RESULTS
from benchmarks.rounds import measure_rounds
from examples.study.cases import CONFUSION, Case, cases
from examples.study.faults import DECIDE, JUDGE
from examples.study.poisoning import halves

FILE = RESULTS / "few_negatives.json"
NEGATIVES, BUDGET = 10, 0.005


def faults(prefix: str) -> Iterator[tuple[str, Callable[[int], dict[str, Any]]]]:
    """The planted faults, with what measures each by a draw."""
    for case in cases((DECIDE, JUDGE)):
        if case.kind != CONFUSION and case.name.startswith(prefix):
            yield case.name, partial(measure, case)


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


if __name__ == "__main__":
    show(measure_rounds(__doc__, FILE, ("draws", 2), faults))
