"""Repairs of a confirmed cause with and without copies of right inputs that it was planted on.

    python -m benchmarks.planted_copies             # every planted fault whose network is trained, and the table
    python -m benchmarks.planted_copies --print     # the table alone

The default repairs `cause:1` of the seen half, once with all of its errors and once with thirty of them; a point is
chosen for each budget, and counted on the other half, which holds real inputs only. Rows are kept in
`benchmarks/results/planted_copies.json`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

import numpy as np

import arachne
from arachne.errors import NothingToRepairError, NothingWithinBudgetError
from benchmarks.causes import RESULTS
from benchmarks.rounds import measure_rounds
from examples.study.budgets import AUTO, BUDGETS, DEFAULT_BUDGET, rows_of
from examples.study.cases import CONFUSION, Case, cases
from examples.study.faults import DECIDE, JUDGE
from examples.study.poisoning import halves

FILE = RESULTS / "planted_copies.json"
SEEN = {"30 errors": 30, "all errors": None}
"""How many errors with the cause are seen, by what the table calls it."""

WAYS = {"without": False, "with": True}
"""Whether copies join, by what the table calls it."""


def faults(prefix: str) -> Iterator[tuple[str, Callable[[int], dict[str, Any]]]]:
    """The planted faults with many errors and with few, and what measures each by a seed."""
    for errors, most in SEEN.items():
        for case in cases((DECIDE, JUDGE)):
            if case.kind != CONFUSION and case.name.startswith(prefix):
                yield f"{case.name}, {errors}", partial(measure, case, errors, most)


def measure(case: Case, errors: str, most: int | None, seed: int) -> dict[str, Any]:
    """Repair the first cause in both ways; return what was repaired and broken of the other half at each budget."""
    backend, data = case.open()
    seen, held_out = halves(data, seed)
    if most is not None:
        planted = seen.columns["planted"] == "yes"
        misread = np.flatnonzero(planted & (backend.predict(seen.inputs) != seen.labels))
        few = np.random.default_rng(seed).choice(misread, min(most, len(misread)), replace=False)
        seen = seen.take(np.sort(np.concatenate([np.flatnonzero(~planted), few])))
    found: dict[str, Any] = {"part": case.part, "errors": errors, "copies": 0}
    for way, copies in WAYS.items():
        settings = arachne.Settings(
            searcher=arachne.Pool(copies=copies), seed=seed, drop_overlap=True, budget=arachne.Budget(DEFAULT_BUDGET)
        )
        try:
            result = arachne.repair(backend, seen, "cause:1", holdout=held_out, settings=settings)
        except NothingWithinBudgetError as error:
            result = error.result
        except NothingToRepairError:  # no cause was found
            return found
        found["copies"] = sum(map(len, result.split.copies.values()))
        own = [row for row in rows_of(result, AUTO) if row.searcher == AUTO]
        found[way] = [[round(row.repair.value, 4), round(row.damage.value, 6)] for row in own]
    return found


def show(known: dict[str, dict[str, Any]]) -> None:
    """Means over the runs in which copies were made, by set of faults, errors and budget, and budgets kept."""
    heads = [f"{100 * budget:g} %" for budget in BUDGETS]
    print(f"| faults | runs | copies | {' | '.join(heads)} | kept |\n|---|---:|---|{'---|' * len(heads)}---|")
    for part, errors in product((DECIDE, JUDGE), SEEN):
        own = [row for row in known.values() if (row["part"], row["errors"]) == (part, errors) and row["copies"]]
        for way in WAYS if own else ():
            rates = np.array([row[way] for row in own])
            cells = [f"{repaired:.2f} @ {100 * broken:.2f} %" for repaired, broken in rates.mean(axis=0)]
            kept = (rates[:, :, 1] <= np.array(BUDGETS)).sum(axis=0)
            print(f"| {part}, {errors} | {len(own)} | {way} | {' | '.join(cells)} | {', '.join(map(str, kept))} |")
    none = [key for key, row in known.items() if not row["copies"]]
    print(f"\nno copies, as nothing was confirmed that could be planted: {', '.join(none) or 'nowhere'}")


if __name__ == "__main__":
    show(measure_rounds(__doc__, FILE, ("seeds", 2), faults))
