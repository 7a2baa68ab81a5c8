"""The front of a repair for programs and for people: every point, which one was taken, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderableType
from rich.table import Table
from rich.text import Text

from arachne.choose.budget import Choice
from arachne.evidence import PartEvidence
from arachne.fairness import Objective
from arachne.report.console import Ink
from arachne.scoring.outcome import Outcome
from arachne.search.cross_fit import pareto
from arachne.search.measured import MeasuredCandidate
from arachne.text import percent

FRONT_SCHEMA = "arachne.front/1"

MANY_POINTS = 20
"""Up to so many points all are shown."""


def choice_objects(
    points: Sequence[MeasuredCandidate],
    choice: Choice | None,
    never_break: PartEvidence | None,
    named: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The entries of `result.json` about the choice; empty if the search left none.

    Args:
        points: The front.
        choice: Which point of it was taken, and why.
        never_break: What became of the inputs that had to stay right.
        named: Where those came from.
    """
    if choice is None:
        return {}
    maker = None if choice.index is None else points[choice.index].candidate.made_by
    kept = None
    if never_break is not None:
        right = never_break.positives
        kept = {**(named or {}), "inputs": never_break.inputs, "right": right, "broken": never_break.broken}
    return {
        "front": [point_object(point, choice.objective) for point in points],
        "chosen": choice.index,
        "chosen_by": {"searcher": maker, "rule": choice.rule, "why": choice.why},
        "budgets": {**choice.budget.to_json(), "never_break": kept},
    }


def point_object(point: MeasuredCandidate, objective: Objective | None = None) -> dict[str, Any]:
    """One point: its searcher, how many weights it changes, and its outcome on each part."""
    return {
        "made_by": point.candidate.made_by,
        "weights": point.weights,
        "size": point.size,
        "seen": _counts(point.seen),
        "out_of_fold": _counts(point.out_of_fold),
        "choose": _counts(point.choose),
        "held_out": _counts(point.held_out),
        "never_broken": point.never_broken,
        **({} if objective is None else {"objective": _values(point, objective)}),
    }


def _values(point: MeasuredCandidate, objective: Objective) -> dict[str, float | None]:
    """The objective's value in each part."""
    sign = -1 if objective.RISES else 1
    parts = {name: getattr(point, name) for name in ("seen", "out_of_fold", "choose", "held_out")}
    return {name: None if part is None else sign * part.cost(objective) for name, part in parts.items()}


def counts_object(outcome: Outcome | PartEvidence) -> dict[str, Any]:
    """How many were repaired, how many broke, and the 95 % intervals of both shares."""
    repair, breakage = outcome.repair, outcome.breakage
    return {
        "repaired": repair.count,
        "negatives": repair.total,
        "repair_interval": repair.interval,
        "broken": breakage.count,
        "positives": breakage.total,
        "break_interval": breakage.interval,
    }


def _counts(outcome: Outcome | None) -> dict[str, int] | None:
    counts = {} if outcome is None else counts_object(outcome)
    return {name: value for name, value in counts.items() if not name.endswith("interval")} or None


@dataclass(frozen=True)
class FrontTable:
    """The points of a front, the safest first, with a star at the chosen one.

    What they do to held-out inputs is left out: whoever chooses by it has none left for a verdict.
    """

    points: Sequence[MeasuredCandidate]
    choice: Choice

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """Called by rich when the table is printed."""
        ink = Ink(options.ascii_only)
        yield ink.text(f"budget: {self.choice.budget}")
        table = Table(box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
        objective = self.choice.objective
        for name in ("", "broken", "repaired", *(() if objective is None else (str(objective),))):
            table.add_column(name, justify="right")
        table.add_column("made by")
        table.add_column("weights", justify="right")
        listed = self._points_to_list()
        for number in listed:
            point = self.points[number]
            mark = "*" if number == self.choice.index else ""
            shares = [percent(point.selection_outcome.breakage.value), percent(point.selection_outcome.repair.value)]
            shares += [] if objective is None else [percent(abs(point.selection_outcome.cost(objective)))]
            table.add_row(mark, *shares, ink.text(point.candidate.made_by), f"{point.weights:,}")
        yield table
        if len(listed) < len(self.points):
            number = len(self.points) - len(listed)
            yield ink.text(f"and {number:,} more that break no less and repair no more than one of these (--json)")
        if self.choice.index is None:
            yield Text.assemble(("NOTHING WITHIN THE BUDGET", "bold red"), ": ", ink.text(self.choice.why), ".")
        else:
            yield ink.text(f"* {self.choice.rule}: {self.choice.why}.")

    def _points_to_list(self) -> list[int]:
        """Return the numbers of the points to show, the safest first; of many, only the ones that no other beats."""
        outcomes, objective = [point.selection_outcome for point in self.points], self.choice.objective
        shown = set(range(len(outcomes)))
        if len(outcomes) > MANY_POINTS:
            costs = None if objective is None else np.array([one.cost(objective) for one in outcomes])
            repaired, broken = (
                np.array([getattr(one, name).value for one in outcomes]) for name in ("repair", "breakage")
            )
            shown = {*pareto(repaired, broken, costs)}
            taken = self.choice.index
            if taken is not None:  # it stands for those that do the same
                same = (repaired == repaired[taken]) & (broken == broken[taken])
                same &= True if costs is None else costs == costs[taken]
                shown = {number for number in shown if not same[number]} | {taken}
        return sorted(shown, key=lambda number: (outcomes[number].breakage.value, number))
