"""Rules of choosing compared on the study's deciding faults: what each takes from the same fronts, on held-out inputs.

    python -m benchmarks.choosing                    # every deciding fault whose network is trained, and the table
    python -m benchmarks.choosing --only fm-         # faults whose names begin so
    python -m benchmarks.choosing --print            # the table alone

`margin` keeps broken + 0.7 √broken within the budget; `luck` adds the luck of the pick, measured by drawing the inputs
anew, and half the margin; `lead` also asks a patch of whole directions to be ahead of single weights by more than
chance, and is the rule of a repair. `*:*` of a clean network, all its errors, is there too. Rows are
kept in `benchmarks/results/choosing.json`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

import arachne
from arachne.choose.careful import LEAD_OF_A_MATRIX, best_of, keeps_budget, select_carefully
from arachne.choose.luck import Luck
from arachne.errors import NothingWithinBudgetError
from arachne.search.measured import MeasuredCandidate
from benchmarks.causes import RESULTS
from benchmarks.rounds import measure_rounds
from examples.study.budgets import BUDGETS, DEFAULT_BUDGET
from examples.study.cases import CONFUSION, cases, open_network
from examples.study.faults import DECIDE
from examples.study.poisoning import halves

FILE = RESULTS / "choosing.json"
RULES = ("margin", "luck", "lead")
EVERY_ERROR = "*:*"


def faults(prefix: str) -> Iterator[tuple[str, Callable[[int], dict[str, Any]]]]:
    """The deciding faults, and all errors of their clean networks, with what measures each by a seed."""
    clean = {}
    for case in cases((DECIDE,)):
        if case.name.startswith(prefix):
            kind = "confusions" if case.kind == CONFUSION else "planted"
            yield case.name, partial(measure, kind, case.network, case.target)
            if case.kind == CONFUSION:
                clean[case.network] = f"{case.network}-all"
    for network, name in clean.items():
        yield name, partial(measure, "all errors", network, EVERY_ERROR)


def measure(kind: str, network: str, target: str, seed: int) -> dict[str, Any]:
    """Repair a fault, and compare the rules on what was found."""
    return {"kind": kind, "rows": compare(find_points(network, target, seed))}


def find_points(network: str, target: str, seed: int) -> list[MeasuredCandidate]:
    """Repair one half, and return the front with its outcomes on the other."""
    backend, data = open_network(network)
    seen, held_out = halves(data, seed)
    settings = arachne.Settings(seed=seed, drop_overlap=True, budget=arachne.Budget(DEFAULT_BUDGET))
    try:
        result = arachne.repair(backend, seen, target, holdout=held_out, settings=settings)
    except NothingWithinBudgetError as error:
        result = error.result
    return [one for one in result.points if one.minimised_from is None]


def compare(points: Sequence[MeasuredCandidate]) -> list[dict[str, Any]]:
    """Choose by each rule at each budget; return what was promised and what was held out, repaired and broken."""
    found = []
    for budget in BUDGETS:
        for rule in RULES:
            index, luck = choose(rule, points, arachne.Budget(budget))
            row: dict[str, Any] = {"rule": rule, "budget": budget, "made_by": None}
            if index is not None:
                judged, held = points[index].selection_outcome, points[index].held_out
                assert held is not None
                broken = judged.breakage.count + luck.broken
                promised = [judged.repair.value - luck.repair, broken / judged.breakage.total]
                row |= {
                    "made_by": points[index].candidate.made_by,
                    "promised": [round(one, 5) for one in promised],
                    "held_out": [round(one, 5) for one in (held.repair.value, held.breakage.value)],
                }
            found.append(row)
    return found


def choose(rule: str, points: Sequence[MeasuredCandidate], budget: arachne.Budget) -> tuple[int | None, Luck]:
    """Choose a point by a rule."""
    repairing = [n for n, p in enumerate(points) if p.selection_outcome.repair.count and p.seen.repair.count]
    if rule != "margin":
        lead = LEAD_OF_A_MATRIX if rule == "lead" else 0.0
        index, _, luck = select_carefully(points, repairing, budget, None, lead=lead)
        return index, luck
    within = [n for n in repairing if keeps_budget(points[n], budget)]
    outcomes = [point.selection_outcome for point in points]
    return (best_of(within, points, outcomes, None) if within else None), Luck()


def show(known: dict[str, dict[str, Any]]) -> None:
    """A line for each kind of fault and rule: held-out repaired @ broken, promised, and runs that keep the budget."""
    budgets = " | ".join(f"{100 * budget:g} %" for budget in BUDGETS)
    print("held-out repaired @ broken % (promised repaired @ broken %), budgets kept\n")
    print(f"| faults | runs | rule | {budgets} |\n|---|---:|---|{'---|' * len(BUDGETS)}")
    kinds = sorted({one["kind"] for one in known.values()})
    for kind in (*kinds, None):
        runs = [one for one in known.values() if kind in (None, one["kind"])]
        for rule in RULES:
            cells = []
            for budget in BUDGETS:
                rows = [row for one in runs for row in one["rows"] if (row["rule"], row["budget"]) == (rule, budget)]
                held = np.array([row.get("held_out", (0.0, 0.0)) for row in rows])
                promised = np.array([row.get("promised", (0.0, 0.0)) for row in rows])
                (r, b), (pr, pb), kept = held.mean(0), promised.mean(0), int((held[:, 1] <= budget).sum())
                cells.append(f"{r:.3f} @ {100 * b:.2f} ({pr:.3f} @ {100 * pb:.2f}), {kept} of {len(rows)}")
            print(f"| {kind or 'together'} | {len(runs)} | {rule} | {' | '.join(cells)} |")


if __name__ == "__main__":
    show(measure_rounds(__doc__, FILE, ("seeds", 1), faults))
