"""Count how often each word of a verdict is wrong on fresh inputs: on the study's runs, and where the truth is known.

A run's held-out inputs are divided at random into two halves: one is judged, the other is fresh. The files of the runs
do not say where a fault appeared anew, nor which other errors were fixed: both count as nowhere, so that more runs are
called worse overall here than a repair would be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from arachne.evidence.grade import (
    KEPT,
    NOT_SHOWN,
    OVERRUN,
    REDUCED,
    REMOVED,
    REMOVED_LOW,
    WORSE,
    Counts,
    break_state,
    grade,
)
from arachne.scoring.statistics import LEVEL, Rate, sign_test
from examples.study.cells import table
from examples.study.faults import JUDGE
from examples.study.runs import read_runs

DIVISIONS = 20
"""How often the held-out inputs of a run are divided."""

DRAWS = 2000
"""How many outcomes are drawn for each known truth."""

TRUTHS = (
    ("nothing changes", 0.02, 0.02, 0.002),
    ("a tenth gone", 0.1, 0.0, 0.002),
    ("a third gone", 0.33, 0.0, 0.002),
    ("just under half gone", 0.49, 0.0, 0.002),
    ("nine tenths gone", 0.9, 0.0, 0.002),
    ("nine tenths gone, 0.5 % broken", 0.9, 0.0, 0.005),
    ("nine tenths gone, 1 % broken", 0.9, 0.0, 0.01),
)
"""Truths: their names, the share of negatives repaired, new ones per negative, and the share of positives broken."""

NEGATIVES, POSITIVES, BUDGET = 60, 2000, 0.005


@dataclass(frozen=True)
class Judged:
    """A verdict on one half of a run's held-out inputs, and the counts of the other half.

    Attributes:
        word: The verdict's word.
        fresh: The counts of the half that was not judged.
        budget: The share of positives that could break.
    """

    word: str
    fresh: Counts
    budget: float

    @property
    def wrong(self) -> bool:
        """Whether the fresh half contradicts the word."""
        fresh = self.fresh
        if self.word == REMOVED:
            overrun = break_state(Rate(fresh.broken, fresh.positives), self.budget) == OVERRUN
            return overrun or fresh.reduction.value < REMOVED_LOW
        if self.word == REDUCED:
            return fresh.repaired <= fresh.new
        if self.word == WORSE:
            return fresh.broken <= fresh.total_fixed
        return self.word == NOT_SHOWN and sign_test(fresh.repaired, fresh.new) < LEVEL


def word_of(counts: Counts, budget: float) -> str:
    """Return the word for some counts under a budget."""
    return grade(counts, break_state(Rate(counts.broken, counts.positives), budget))


def read_recorded(folder: Path, part: str = JUDGE) -> Iterator[tuple[Counts, float]]:
    """Yield the held-out counts of every repair by the default search within a budget, and the budget."""
    for run in read_runs(folder):
        for row in run.rows if run.part == part and run.searcher == "auto" else ():
            if row.searcher == "auto" and row.made_by is not None:
                yield Counts(row.negatives, row.repaired, 0, row.positives, row.broken), row.budget


def divide(counts: Counts, random: np.random.Generator) -> tuple[Counts, Counts]:
    """Divide inputs at random into two halves, each with its counts."""
    negatives, positives = counts.negatives // 2, counts.positives // 2
    repaired = int(random.hypergeometric(counts.repaired, counts.negatives - counts.repaired, negatives))
    broken = int(random.hypergeometric(counts.broken, counts.positives - counts.broken, positives))
    return Counts(negatives, repaired, 0, positives, broken), Counts(
        counts.negatives - negatives,
        counts.repaired - repaired,
        0,
        counts.positives - positives,
        counts.broken - broken,
    )


def judge_halves(folder: Path, part: str = JUDGE, seed: int = 0) -> list[Judged]:
    """Judge one half of every run's held-out inputs, many times, and keep the counts of the other."""
    random = np.random.default_rng(seed)
    judged = []
    for counts, budget in read_recorded(folder, part):
        for _ in range(DIVISIONS):
            one, fresh = divide(counts, random)
            judged.append(Judged(word_of(one, budget), fresh, budget))
    return judged


def draw(truth: tuple[str, float, float, float], random: np.random.Generator) -> Counts:
    """Draw an outcome of a known truth, one of `TRUTHS`."""
    _, repaired, new, broken = truth
    return Counts(
        NEGATIVES,
        int(random.binomial(NEGATIVES, repaired)),
        int(random.binomial(NEGATIVES, new)),
        POSITIVES,
        int(random.binomial(POSITIVES, broken)),
    )


def simulate(seed: int = 0) -> dict[str, Counter[str]]:
    """Count the words, and budgets called overrun, of many outcomes of every known truth."""
    random = np.random.default_rng(seed)
    found: dict[str, Counter[str]] = {}
    for truth in TRUTHS:
        counted: Counter[str] = Counter()
        for _ in range(DRAWS):
            counts = draw(truth, random)
            state = break_state(Rate(counts.broken, counts.positives), BUDGET)
            counted.update((grade(counts, state), *(() if state == KEPT else (state,))))
        found[truth[0]] = counted
    return found


def show(folder: Path) -> None:
    """Print the words of the study's runs, how often fresh inputs contradict each, and the words of known truths."""
    words = Counter(word_of(*one) for one in read_recorded(folder))
    halves = judge_halves(folder)
    rows = [
        [word, str(words[word]), str(len(same)), f"{100 * sum(one.wrong for one in same) / len(same):.1f} %"]
        for word in (REMOVED, REDUCED, NOT_SHOWN, WORSE)
        if (same := [one for one in halves if one.word == word])
    ]
    print(
        f"Repairs of faults that judge, by the default search at every budget; halves divided {DIVISIONS} times each.\n"
    )
    print(table(["word", "runs", "halves", "contradicted by the other half"], rows))
    removed = [one for one in halves if one.word == REMOVED]
    over = sum(one.fresh.broken > one.budget * one.fresh.positives for one in removed)
    print(f"\nOf {len(removed)} halves called removed, {over} have a fresh half above the budget, by chance or not.")
    drawn = simulate()
    columns = (REMOVED, REDUCED, NOT_SHOWN, WORSE, OVERRUN)
    print(f"\nKnown truths, {NEGATIVES} negatives, {POSITIVES} positives, a budget of 0.5 %, {DRAWS} draws each.\n")
    print(
        table(
            ["truth", *columns],
            [[name, *(f"{100 * counted[one] / DRAWS:.1f} %" for one in columns)] for name, counted in drawn.items()],
        )
    )
