"""Tell whether a simpler searcher would have done as well, by a paired comparison on the held-out inputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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

MIN_PROMISE = 0.5
"""A simple searcher is considered if it repairs this share of what the chosen point repairs on the same inputs."""


def as_good(simple: Outcome, other: Outcome) -> bool:
    """Tell whether one candidate repairs nearly as much as another and breaks no more, beyond chance.

    Both are counted on the same inputs, so the tests use the inputs that exactly one of them gets right.
    """
    if not simple.repair.count or simple.repair.count < MIN_REPAIR_RATIO * other.repair.count:
        return False
    negative, positive = simple.baseline.negative, simple.baseline.right
    return not (_worse(simple, other, negative) or _worse(simple, other, positive))


def simple_choices(
    points: Sequence[MeasuredCandidate], choice: Choice, names: Sequence[str]
) -> Iterator[tuple[str, int]]:
    """Yield the searchers simpler than the one whose point was taken, the simplest first, with the point each offers.

    It is the point that a repair by this searcher alone takes within the same budget.
    """
    taken = None if choice.index is None else points[choice.index]
    for maker in SIMPLE_SEARCHERS:
        if taken is None or maker == taken.candidate.made_by:
            return
        own = [n for n, point in enumerate(points) if point.candidate.made_by == maker]
        found = select_point([points[n] for n in own], choice.budget, names, choice.objective).index if own else None
        if found is not None:
            promised = points[own[found]].selection_outcome.repair.value
            if promised >= MIN_PROMISE * taken.selection_outcome.repair.value:
                yield maker, own[found]


def simplest_as_good(points: Sequence[MeasuredCandidate], choice: Choice, names: Sequence[str]) -> str | None:
    """Return a sentence if a simple searcher's point does as well on held-out inputs as the selected one; else None.

    Args:
        points: The front, with held-out outcomes.
        choice: The selected point and its budget.
        names: The model's classes in order.
    """
    taken = None if choice.index is None else points[choice.index].held_out
    for maker, number in simple_choices(points, choice, names):
        outcome = points[number].held_out
        if taken is not None and outcome is not None and as_good(outcome, taken) and _as_fair(outcome, taken, choice):
            told = sentence(maker, outcome, points[choice.index or 0].candidate.made_by, taken)
            return (
                f"Of the patches found here, {told} A run of '{maker}' alone, as `arachne compare` makes one, draws "
                "its folds anew and may come to other numbers."
            )
    return None


def sentence(simple: str, outcome: Outcome, other: str, others: Outcome) -> str:
    """`a shift of the class biases ('bias') does as well: held out, 30 of 42 repaired and …`."""
    gains = (outcome.repair.count - others.repair.count, others.breakage.count - outcome.breakage.count)
    how = "does at least as well" if min(gains) >= 0 and max(gains) > 0 else "does as well"
    how = "does nearly as well, within chance" if max(gains) < 0 else how
    return (
        f"{SIMPLE_SEARCHERS[simple]} ('{simple}') {how}: held out, {_counts(outcome)}, where '{other}' has "
        f"{_counts(others)}."
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
