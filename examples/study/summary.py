"""Means over faults: a fault counts once however many seeds it was repaired with."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from arachne.scoring.statistics import Rate
from examples.study.runs import Row, Run

RESAMPLES = 4000
SYSTEMATIC, CONFUSIONS = "Systematic faults", "Confusions"


@dataclass(frozen=True)
class Mean:
    """A mean over faults with its 95 % interval, from resampling the faults."""

    value: float
    low: float
    high: float
    faults: int

    @classmethod
    def of(cls, by_fault: Sequence[float]) -> Mean:
        """The mean of one number for each fault."""
        values = np.asarray(by_fault)
        drawn = np.random.default_rng(0).integers(0, len(values), (RESAMPLES, len(values)))
        low, high = np.quantile(values[drawn].mean(axis=1), (0.025, 0.975))
        return cls(float(values.mean()), float(low), float(high), len(values))


@dataclass(frozen=True)
class Summary:
    """A searcher at a budget.

    Attributes:
        repair: The share of held-out negatives that were repaired.
        damage: The share of held-out positives that were broken.
        kept: The share of runs whose held-out damage keeps the budget.
        weights: How many weights the patch changes, the median over runs in which there is one; None if there is none.
        possible: What `repair` would be had the choice been made by the held-out inputs.
        faults: Over how many faults.
    """

    repair: Mean
    damage: Mean
    kept: Rate
    weights: float | None
    possible: Mean
    faults: int


def rows_of(runs: Iterable[Run], searcher: str, budget: float) -> dict[str, list[Row]]:
    """A searcher's rows at a budget, by fault."""
    found: dict[str, list[Row]] = defaultdict(list)
    for run in runs:
        for row in run.rows:
            if row.searcher == searcher and row.budget == budget and row.negatives:
                found[run.fault].append(row)
    return found


def summarise(runs: Iterable[Run], searcher: str, budget: float) -> Summary | None:
    """A searcher at a budget over all faults of some runs; None if it did not run."""
    by_fault = rows_of(runs, searcher, budget)
    if not by_fault:
        return None
    rows = [row for own in by_fault.values() for row in own]
    weights = [row.weights for row in rows if row.made_by is not None]
    return Summary(
        repair=_mean(by_fault, lambda row: row.repair.value),
        damage=_mean(by_fault, lambda row: row.damage.value),
        kept=Rate(sum(row.keeps_budget for row in rows), len(rows)),
        weights=float(np.median(weights)) if weights else None,
        possible=_mean(by_fault, lambda row: row.possible / row.negatives),
        faults=len(by_fault),
    )


def _mean(by_fault: Mapping[str, Sequence[Row]], number: Callable[[Row], float]) -> Mean:
    """The mean over faults of a number's mean over seeds."""
    return Mean.of([float(np.mean([number(row) for row in own])) for own in by_fault.values()])


def groups_of(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """Runs on planted faults and runs on confusions, as far as there are any with numbers."""
    groups: dict[str, list[Run]] = {SYSTEMATIC: [], CONFUSIONS: []}
    for run in runs:
        groups[SYSTEMATIC if run.systematic else CONFUSIONS].append(run)
    return {name: own for name, own in groups.items() if any(run.rows for run in own)}


def made_by(searcher: str, runs: Iterable[Run]) -> list[Run]:
    """The runs of one searcher."""
    return [run for run in runs if run.searcher == searcher]


def searchers_of(runs: Iterable[Run]) -> list[str]:
    """Searchers with rows in some runs, in the order of the first run that has them."""
    return list(dict.fromkeys(row.searcher for run in runs for row in run.rows))


def gain_over(runs: Sequence[Run], first: str, second: str, budget: float) -> Mean:
    """How much more one searcher repairs than another, fault by fault; both have to have run on the same ones."""
    ours, theirs = (rows_of(runs, searcher, budget) for searcher in (first, second))
    return Mean.of(
        [
            float(np.mean([a.repair.value - b.repair.value for a, b in zip(ours[f], theirs[f], strict=True)]))
            for f in ours
        ]
    )


def shared_runs(runs: Sequence[Run], searchers: Sequence[str]) -> list[Run]:
    """The runs on faults and seeds that all of these searchers have finished."""
    done = {who: {(run.fault, run.seed) for run in runs if run.searcher == who and run.rows} for who in searchers}
    common = set.intersection(*done.values())
    return [run for run in runs if (run.fault, run.seed) in common]
