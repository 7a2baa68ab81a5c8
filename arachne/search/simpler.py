"""Would something simpler have done as well? Two candidates on the same inputs, counted pair by pair."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from arachne.evidence.statistics import LEVEL, sign_test
from arachne.search.choose import CLOSE_FAIR, Choice, choose
from arachne.search.standing import Point, Standing
from arachne.values import Array

SIMPLE = {
    "bias": "a shift of the class biases",
    "ridge": "a ridge fit of the last layer",
    "last": "training the last layer alone",
}
"""Searchers anybody would try first, the simplest first, and what they do in words."""

NEARLY = 0.9
"""A candidate is as good as another if it repairs at least this share of what the other repairs, up to chance."""


def as_good(simple: Standing, other: Standing) -> bool:
    """Whether one candidate repairs nearly as much as another and breaks no more, beyond what chance could do.

    Both are counted on the same inputs, so only those count that one gets right and the other does not.
    """
    if not simple.repair.count or simple.repair.count < NEARLY * other.repair.count:
        return False
    negative, positive = simple.baseline.negative, simple.baseline.right
    return not (_worse(simple, other, negative) or _worse(simple, other, positive))


def simplest_as_good(points: Sequence[Point], choice: Choice, names: Sequence[str]) -> str | None:
    """A sentence when a simple member of a front would have done as well, held out, as the point that was taken.

    Args:
        points: The front, held out included.
        choice: Which point was taken, and within what budget.
        names: The model's classes in order.
    """
    taken = None if choice.index is None else points[choice.index]
    if taken is None or taken.held_out is None:
        return None
    for maker in SIMPLE:
        if maker == taken.candidate.made_by:
            return None
        own = [point for point in points if point.candidate.made_by == maker]
        found = choose(own, choice.budget, names, choice.objective).index if own else None
        standing = None if found is None else own[found].held_out
        if standing is not None and as_good(standing, taken.held_out) and _as_fair(standing, taken.held_out, choice):
            return sentence(maker, standing, taken.candidate.made_by, taken.held_out)
    return None


def sentence(simple: str, standing: Standing, other: str, others: Standing) -> str:
    """`A shift of the class biases ('bias') would have done as well: 30 of 42 repaired and 1 of 393 broken, …`."""
    words = SIMPLE[simple]
    return (
        f"{words[:1].upper()}{words[1:]} ('{simple}') would have done as well: held out, {_counts(standing)}, "
        f"where '{other}' has {_counts(others)}."
    )


def _as_fair(simple: Standing, other: Standing, choice: Choice) -> bool:
    objective = choice.objective
    return objective is None or simple.cost(objective) <= other.cost(objective) + CLOSE_FAIR


def _worse(one: Standing, other: Standing, among: Array) -> bool:
    """Whether one is right on fewer of some inputs than another, beyond chance."""
    mine = int(np.sum(one.right & ~other.right & among))
    theirs = int(np.sum(~one.right & other.right & among))
    return theirs > mine and sign_test(theirs, mine) < LEVEL


def _counts(standing: Standing) -> str:
    repair, breakage = standing.repair, standing.breakage
    return f"{repair.count:,} of {repair.total:,} repaired and {breakage.count:,} of {breakage.total:,} broken"
