"""Read the lines: rates of a run, at the budget it was asked to keep or at another, and their means."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from examples.study.questions.kept import DONE, Kept
from examples.study.questions.repairing import BUDGETS, DEFAULT, DEFAULT_BUDGET, FAITHFUL, RUNGS
from examples.study.summary import Mean

EQUAL = "equal"
"""In place of a budget: what the paper's repair broke of the same seen half."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of one run on one half.

    Attributes:
        negatives: Inputs with the fault.
        repaired: Of these, right now.
        positives: Inputs that were right.
        broken: Of these, wrong now.
        inputs: All inputs.
        right: Of these, right now.
        classes: Of the class that is repaired and of the one it is read as: inputs, right before, right now.
        weights: How many weights were changed.
    """

    negatives: int
    repaired: int
    positives: int
    broken: int
    inputs: int
    right: int
    classes: tuple[tuple[int, int, int] | None, tuple[int, int, int] | None]
    weights: int

    @property
    def repair(self) -> float:
        """RR."""
        return self.repaired / self.negatives if self.negatives else 0.0

    @property
    def damage(self) -> float:
        """BR."""
        return self.broken / self.positives

    @property
    def gain(self) -> float:
        """By how many points the accuracy rises."""
        return 100 * (self.right - self.positives) / self.inputs

    def class_gain(self, which: int) -> float:
        """By how many points the accuracy of class a (0) or b (1) rises."""
        own = self.classes[which]
        return 0.0 if own is None else 100 * (own[2] - own[1]) / max(1, own[0])


def outcome(kept: Kept, half: str = "held_out") -> Outcome:
    """Return the outcome of a run."""
    told = kept.found[half]
    classes = [
        (told[f"{name}_inputs"], *told[name]) if f"{name}_inputs" in told else None for name in ("class_a", "class_b")
    ]
    counts = (told[name] for name in ("negatives", "repaired", "positives", "broken", "inputs"))
    return Outcome(*counts, told["right"][1], (classes[0], classes[1]), kept.found["weights"])


def at(kept: Kept, budget: float, ladder: str = "ladder", half: str = "held_out") -> Outcome:
    """Return the outcome of a run at another budget; `ladder` may be a part of the default search."""
    own, rung = outcome(kept, half), _rung(kept, budget, ladder)
    if half == "seen":
        broken = rung["seen_broken"]
        return Outcome(own.negatives, rung["seen_repaired"], own.positives, broken, own.inputs, 0, (None, None), 0)
    classes = [
        None if pair is None or rung[name] is None else (pair[0], pair[1], rung[name])
        for pair, name in zip(own.classes, ("class_a", "class_b"), strict=True)
    ]
    counts = (own.negatives, rung["repaired"], own.positives, rung["broken"], own.inputs, rung["right"])
    return Outcome(*counts, (classes[0], classes[1]), rung["weights"])


def _rung(kept: Kept, budget: float, ladder: str) -> dict[str, Any]:
    rows = [dict(zip(RUNGS, row, strict=True)) for row in kept.found[ladder]]
    return (
        [row for row in rows if row["budget"] <= budget + 1e-12][-1]
        if budget >= BUDGETS[0]
        else rows[0] | {**dict.fromkeys(RUNGS, 0), "right": outcome(kept).positives, "class_a": None, "class_b": None}
    )


@dataclass(frozen=True)
class Pair:
    """The paper's repair and the default of the same case and seed."""

    faithful: Kept
    default: Kept

    @property
    def budget(self) -> float:
        """Return how much the paper's repair broke of the seen half."""
        return outcome(self.faithful, "seen").damage

    def level_repair(self, ladder: str = "ladder") -> float:
        """RR of the default where it breaks as much of the held-out half as the paper's repair does there.

        Budgets are steps, so it is read between the two choices next to that damage; where no budget breaks as much,
        the one that breaks most counts.
        """
        own = outcome(self.default)
        steps = {0.0: 0.0}
        for row in self.default.found[ladder]:
            rung = dict(zip(RUNGS, row, strict=True))
            steps[rung["broken"] / own.positives] = rung["repaired"] / max(1, own.negatives)
        damages = sorted(steps)
        return float(np.interp(outcome(self.faithful).damage, damages, [steps[damage] for damage in damages]))

    def default_at(self, budget: float | str, ladder: str = "ladder") -> Outcome:
        """The default at a budget, or at the paper's damage."""
        if budget == DEFAULT_BUDGET and ladder == "ladder":
            return outcome(self.default)
        return at(self.default, self.budget if budget == EQUAL else float(budget), ladder)


def pairs(kept: Iterable[Kept], ways: tuple[str, str] = (FAITHFUL, DEFAULT)) -> list[Pair]:
    """Cases and seeds that both ways have finished."""
    by_way: dict[str, dict[tuple[str, str, int], Kept]] = {way: {} for way in ways}
    for one in kept:
        if one.cell.way in by_way and one.outcome == DONE:
            by_way[one.cell.way][one.cell.subject, one.cell.case, one.cell.seed] = one
    first, second = by_way.values()
    return [Pair(first[key], second[key]) for key in first if key in second]


def of(kept: Iterable[Kept], subject: str, way: str, case: str | None = None) -> list[Kept]:
    """The finished runs of one subject in one way, perhaps of one case."""
    return [
        one
        for one in kept
        if (one.cell.subject, one.cell.way, one.outcome) == (subject, way, DONE) and case in (None, one.cell.case)
    ]


def mean(values: Sequence[float]) -> Mean:
    """A mean over runs with its 95 % interval, from resampling runs."""
    return Mean.of(values)


def by_case(kept: Sequence[Kept], values: Sequence[float]) -> list[float]:
    """The mean of a number for each fault, or of every run where there is one fault alone."""
    cases: dict[tuple[str, str], list[float]] = {}
    for one, value in zip(kept, values, strict=True):
        cases.setdefault((one.cell.subject, one.cell.case), []).append(value)
    return list(values) if len(cases) == 1 else [sum(own) / len(own) for own in cases.values()]
