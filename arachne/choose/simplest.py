"""Tell whether a simpler searcher would have done as well, by a paired comparison on the held-out inputs."""

from __future__ import annotations

from collections.abc import Sequence

from arachne.choose.budget import Choice
from arachne.choose.careful import CLOSE_FAIRNESS
from arachne.choose.select import select_point
from arachne.model.values import Array
from arachne.scoring.by_input import paired_p
from arachne.scoring.outcome import Outcome
from arachne.scoring.statistics import LEVEL
from arachne.search.measured import MeasuredCandidate

SIMPLE_SEARCHERS = {
    "bias": "a shift of the class biases",
    "ridge": "a ridge fit of the last layer",
    "last-layer": "training the last layer alone",
}
"""The searchers that anybody would try first, the simplest first, with a description."""

MIN_REPAIR_RATIO = 0.9
"""A candidate is as good as another only if it repairs at least this share of the number that the other repairs."""


def as_good(simple: Outcome, other: Outcome) -> bool:
    """Tell whether one candidate repairs nearly as much as another and breaks no more, beyond chance.

    Both are counted on the same inputs, so the tests use the inputs that exactly one of them gets right.
    """
    if not simple.repair.count or simple.repair.count < MIN_REPAIR_RATIO * other.repair.count:
        return False
    negative, positive = simple.baseline.negative, simple.baseline.right
    return not (_worse(simple, other, negative) or _worse(simple, other, positive))


def simplest_as_good(points: Sequence[MeasuredCandidate], choice: Choice, names: Sequence[str]) -> str | None:
    """Return a sentence if a simple searcher's point does as well on held-out inputs as the selected one; else None.

    Args:
        points: The front, with held-out outcomes.
        choice: The selected point and its budget.
        names: The model's classes in order.
    """
    taken = None if choice.index is None else points[choice.index]
    if taken is None or taken.held_out is None:
        return None
    for maker in SIMPLE_SEARCHERS:
        if maker == taken.candidate.made_by:
            return None
        own = [point for point in points if point.candidate.made_by == maker]
        found = select_point(own, choice.budget, names, choice.objective).index if own else None
        outcome = None if found is None else own[found].held_out
        if outcome is not None and as_good(outcome, taken.held_out) and _as_fair(outcome, taken.held_out, choice):
            return sentence(maker, outcome, taken.candidate.made_by, taken.held_out)
    return None


def sentence(simple: str, outcome: Outcome, other: str, others: Outcome) -> str:
    """`A shift of the class biases ('bias') would have done as well: 30 of 42 repaired and 1 of 393 broken, …`."""
    words = SIMPLE_SEARCHERS[simple]
    return (
        f"{words[:1].upper()}{words[1:]} ('{simple}') would have done as well: held out, {_counts(outcome)}, "
        f"where '{other}' has {_counts(others)}."
    )


def _as_fair(simple: Outcome, other: Outcome, choice: Choice) -> bool:
    objective = choice.objective
    return objective is None or simple.cost(objective) <= other.cost(objective) + CLOSE_FAIRNESS


def _worse(one: Outcome, other: Outcome, among: Array) -> bool:
    """Tell whether one outcome is right on fewer of some inputs than another, beyond chance."""
    mine = one.right & ~other.right & among
    theirs = ~one.right & other.right & among
    return bool(theirs.sum() > mine.sum()) and paired_p(theirs, mine, one.baseline.owners) < LEVEL


def _counts(outcome: Outcome) -> str:
    repair, breakage = outcome.repair, outcome.breakage
    return f"{repair.count:,} of {repair.total:,} repaired and {breakage.count:,} of {breakage.total:,} broken"
