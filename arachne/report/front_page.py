"""The front of a repair for the page: the inputs each point fixes and breaks, each picture stored once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from arachne.model.values import Array
from arachne.report.front import counts_object
from arachne.report.pictures import show_inputs

if TYPE_CHECKING:
    from arachne.choose.budget import Choice
    from arachne.data.part import Part
    from arachne.scoring.outcome import Outcome
from arachne.search.measured import MeasuredCandidate, count_found

MOST_POINTS = 60
MAX_LISTED_INPUTS = 100
"""How many rows fixed, and how many broken, are listed of one point; the counts are always of all."""

MOST_PICTURES = 120
"""How many inputs the points show together, besides those in the galleries."""


def front_object(
    points: Sequence[MeasuredCandidate], choice: Choice, held_out: Part, *, shown_already: Iterable[int] = ()
) -> dict[str, Any]:
    """The front as the page has it, by rising damage on held-out inputs.

    Args:
        points: The candidates with what they do, held out included.
        choice: Which of them the patch is, and within what budget.
        held_out: The inputs the verdict comes from.
        shown_already: Row numbers in the user's data of inputs that the page shows elsewhere.
    """
    chosen = choice.index
    kept = _select_points(points, chosen)
    shown = [_point(points[number], chosen == number) for number in kept]
    changed = [_changed_inputs(points[number].held_out) for number in kept]
    for point, (fixed, broken) in zip(shown, changed, strict=True):
        for name, rows in (("fixed", fixed), ("broken", broken)):
            point[name], point[f"{name}_total"] = held_out.decision_rows[rows[:MAX_LISTED_INPUTS]], len(rows)
    already = set(shown_already)
    counts = Counter(int(row) for pair in changed for rows in pair for row in rows[:MAX_LISTED_INPUTS])
    wanted = [row for row, _ in counts.most_common() if int(held_out.decision_rows[row]) not in already][:MOST_PICTURES]
    return {
        "budget": choice.budget.max_break,
        "points": shown,
        "found": count_found(points),
        "left_out": len(points) - len(kept),
        "judged_on": " or ".join(dict.fromkeys(point.selection_basis for point in points)),
        "inputs": _inputs(held_out, sorted(wanted)),
    }


def _select_points(points: Sequence[MeasuredCandidate], chosen: int | None) -> list[int]:
    """Which points to show, by rising damage: all, or so many at even distances, the chosen one among them."""

    def rank(number: int) -> tuple[float, float, int]:
        outcome = points[number].held_out or points[number].selection_outcome
        return outcome.breakage.value, outcome.repair.value, number

    order = sorted(range(len(points)), key=rank)
    if len(order) <= MOST_POINTS:
        return order
    even = {order[round(k * (len(order) - 1) / (MOST_POINTS - 2))] for k in range(MOST_POINTS - 1)}
    return [number for number in order if number in even or number == chosen]


def _point(point: MeasuredCandidate, chosen: bool) -> dict[str, Any]:
    compared = point.out_of_fold or point.choose
    return {
        "made_by": point.candidate.made_by,
        "weights": point.weights,
        "minimised_from": point.minimised_from,
        "chosen": chosen,
        "seen": counts_object(point.seen),
        "choose": None if compared is None else counts_object(compared),
        "held_out": None if point.held_out is None else counts_object(point.held_out),
    }


def _changed_inputs(outcome: Outcome | None) -> tuple[Array, Array]:
    """Positions of fixed and of broken inputs; inputs that showed the fault come first."""
    if outcome is None:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    was, now = outcome.baseline.right, outcome.right
    fixed = np.flatnonzero(~was & now)
    order = np.argsort(~outcome.baseline.negative[fixed], kind="stable")
    return fixed[order], np.flatnonzero(was & ~now)


def _inputs(held_out: Part, positions: list[int]) -> list[dict[str, Any]]:
    """The inputs of some decisions as the page shows them, by the numbers of the decisions."""
    data, inputs = held_out.data, held_out.decisions.inputs[positions].tolist()
    return [
        {
            "row": int(held_out.rows[own]),
            "name": None if data.names is None else data.names[own],
            "label": held_out.class_names[int(held_out.label_classes[number])],
            "before": held_out.class_names[int(held_out.prediction_classes[number])],
            "input": shown,
        }
        for number, own, shown in zip(positions, inputs, show_inputs(data, inputs), strict=True)
    ]


def makers(front: Mapping[str, Any]) -> list[str]:
    """The searchers that made the points, in order of appearance."""
    return list(dict.fromkeys(point["made_by"] for point in front["points"]))
