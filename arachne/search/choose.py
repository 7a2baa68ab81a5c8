"""One point of a front: the most repaired within a budget, by a careful estimate or with a guarantee."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import bdtr

from arachne.data.grouping import MOST_GROUPS
from arachne.evidence.statistics import Rate
from arachne.evidence.verdict import percent
from arachne.evidence.who_pays import points as in_points
from arachne.fairness import Objective
from arachne.search.budget import Budget
from arachne.search.standing import Point, Standing
from arachne.values import Array
from arachne.wording import counted

SPREAD = 0.7
"""Room left in the budget: broken + 0.7 √broken must keep it, 0.7 deviations of a count.

Of many candidates that look alike the luckiest is taken, so that it breaks more of new inputs than where it was judged.
How often choices by this rule keep their budgets on held-out inputs is in docs/repairs-at-equal-damage.md.
"""

CLOSE = 0.02
"""Repair rates this near to the best count as equal, and the point that breaks least is taken."""

CLOSE_FAIR = 0.005
"""The same for an objective's values: half a point."""


@dataclass(frozen=True)
class Choice:
    """Which point of a front was taken, and why.

    Attributes:
        index: Its number; None when none keeps the budget.
        budget: What it had to keep.
        rule: How points were compared, in words.
        why: What speaks for the point that was taken, or why none was, in words and numbers.
        within: The numbers of all points that keep the budget.
        beyond: When none does, the number of the one that misses it by least.
        objective: What the point should make fairer; the best of it is taken, not the most repaired.
    """

    index: int | None
    budget: Budget
    rule: str
    why: str
    within: tuple[int, ...] = ()
    beyond: int | None = None
    objective: Objective | None = None


@dataclass(frozen=True)
class _Limits:
    """What a point may cost beside the break rate, and what it should gain.

    Attributes:
        classes: How far the accuracy of each class may fall `(classes,)`.
        groups: How far that of a group may fall, by column and value.
        objective: What should become fairer.
    """

    classes: Array
    groups: Mapping[tuple[str, str], float]
    objective: Objective | None

    @property
    def best(self) -> str:
        """What is best among the points within a budget, in words."""
        if self.objective is None:
            return "most repaired"
        return f"{'highest' if self.objective.RISES else 'smallest'} {self.objective}"


def choose(points: Sequence[Point], budget: Budget, names: Sequence[str], objective: Objective | None = None) -> Choice:
    """Take the point that repairs most within a budget. Held-out inputs are never looked at.

    Args:
        points: The front.
        budget: What may break.
        names: The model's classes in order.
        objective: What should become fairer, with its column: the best of it is then taken, not the most repaired.

    Raises:
        UsageError: The budget names a class the model does not have, or a group that the data does not have.
    """
    limits = limits_of(points, budget, names, objective)
    if budget.confidence is not None:
        return _guaranteed(points, budget, limits)
    within = [
        n for n, p in enumerate(points) if _trusted(p, budget) and _keeps(p, p.judged, limits) and _careful(p, budget)
    ]
    rule = (
        f"{limits.best} among the points that keep {percent(budget.max_break)} with room to spare (broken + {SPREAD:g} "
        f"times its root), judged {_judged_on(points)}"
    )
    if not within:
        return _nothing(points, budget, limits, rule, "judged", f"keeps {percent(budget.max_break)} with room to spare")
    index = _best(within, points, [point.judged for point in points], objective)
    why = _told(points[index], points[index].judged, objective)
    return Choice(index, budget, rule, why, tuple(within), objective=objective)


def limits_of(
    points: Sequence[Point], budget: Budget, names: Sequence[str], objective: Objective | None = None
) -> _Limits:
    """What points may cost, and what they should gain; arguments as for `choose`."""
    groups: Mapping[tuple[str, str], float] = {}
    if budget.max_group_drop and points:
        baseline = points[0].seen.baseline
        named = [column for column in baseline.columns if objective is None or column == objective.group_column]
        every = {column: baseline.by(column).names for column in baseline.columns}
        few = {column: values for column, values in every.items() if len(values) <= MOST_GROUPS}
        groups = budget.group_limits(few, named)
    return _Limits(budget.class_limits(names), groups, objective)


def _guaranteed(points: Sequence[Point], budget: Budget, limits: _Limits) -> Choice:
    """Learn-then-Test: walk from the safest point to the boldest, and stop at the first that fails an exact test.

    The order and what is left out of it rest on what the search saw alone, so the tests on the inputs kept for choosing
    are a fixed sequence: the chance that any point that passed breaks more than the budget is at most 1 - confidence.
    Dropping some of those that passed afterwards, for any reason, keeps that.
    """
    sure = f"{100 * (budget.confidence or 0):g} %"
    rule = (
        f"{limits.best} among the points that break at most {percent(budget.max_break)} with {sure} confidence (exact "
        "binomial test on inputs the search never had, from the safest point on, up to the first that fails)"
    )
    kept = next((point.choose.breakage.total for point in points if point.choose is not None), 0)
    if kept < budget.fewest_positives:
        return Choice(None, budget, rule, too_few(budget, kept), objective=limits.objective)
    order = [number for number, point in enumerate(points) if _keeps(point, point.searched, limits)]
    order.sort(key=lambda number: (points[number].searched.breakage.value, points[number].size))
    passed: list[int] = []
    for number in order:
        if p_above(points[number].choose, budget) > 1 - (budget.confidence or 0):
            break
        passed.append(number)
    within = [number for number in passed if _drops_kept(points[number].choose, limits)]
    if not within:
        return _nothing(
            points, budget, limits, rule, "choose", f"is shown to break at most {percent(budget.max_break)}"
        )
    index = _best(within, points, [point.searched for point in points], limits.objective)
    chosen = points[index].choose or points[index].seen  # there is a `choose`, or no test would have passed
    told = _told(points[index], chosen, limits.objective)
    why = f"{told}, p = {p_above(chosen, budget):.2g} for more than {percent(budget.max_break)}"
    return Choice(index, budget, rule, why, tuple(within), objective=limits.objective)


def p_above(standing: Standing | None, budget: Budget) -> float:
    """The exact p-value of "breaks more than the budget": P(Bin(n, max_break) <= broken); 1 without inputs."""
    if standing is None or not standing.breakage.total:
        return 1.0
    return float(bdtr(standing.breakage.count, standing.breakage.total, budget.max_break))


def too_few(budget: Budget, kept: int) -> str:
    """Why a guarantee cannot be given, and how many inputs it takes."""
    return (
        f"a guarantee of at most {percent(budget.max_break)} broken with {100 * (budget.confidence or 0):g} % "
        f"confidence takes {budget.fewest_positives:,} inputs that are right and kept from the search, and there "
        f"{'is' if kept == 1 else 'are'} {kept:,}; give more data, a larger budget or less confidence"
    )


def _trusted(point: Point, budget: Budget) -> bool:
    """A minimised point was tried out within one budget, and counts are known of the larger patch alone."""
    return point.minimised_for is None or point.minimised_for <= budget.max_break


def _careful(point: Point, budget: Budget) -> bool:
    """What was fitted to the seen inputs flatters itself there, but where it breaks too much of them it is out."""
    both = (point.judged, point.seen if point.out_of_fold is None else point.judged)
    return all(_with_room(one.breakage) <= budget.max_break * one.breakage.total + 1e-9 for one in both)


def _with_room(breakage: Rate) -> float:
    return breakage.count + SPREAD * math.sqrt(breakage.count)


def _keeps(point: Point, standing: Standing, limits: _Limits) -> bool:
    """All but the break rate: it repairs or is fairer, breaks no never-break input, no class or group loses much."""
    better = standing.repair.count > 0 if limits.objective is None else standing.gain(limits.objective) > 0
    return better and not point.never_broken and _drops_kept(standing, limits)


def _drops_kept(standing: Standing | None, limits: _Limits) -> bool:
    if standing is None or np.any(standing.class_drops(len(limits.classes)) > limits.classes + 1e-12):
        return False
    drops = {column: standing.group_drops(column) for column in dict.fromkeys(column for column, _ in limits.groups)}
    return all(drops[column].get(value, 0.0) <= most + 1e-12 for (column, value), most in limits.groups.items())


def _best(
    within: Sequence[int], points: Sequence[Point], standings: Sequence[Standing], objective: Objective | None
) -> int:
    """Most repaired, or fairest; of those about as good the fewest broken, then one minimised, then the smallest.

    Rates are compared, since points may be judged on different inputs.
    """
    if objective is None:
        gains = {number: standings[number].repair.value for number in within}
    else:
        gains = {number: standings[number].gain(objective) for number in within}
    close = CLOSE if objective is None else CLOSE_FAIR
    near = [number for number in within if gains[number] >= max(gains.values()) - close]

    def worth(number: int) -> tuple[float, float, bool, float]:
        point = points[number]
        return standings[number].breakage.value, -gains[number], point.minimised_from is None, point.size

    return min(near, key=worth)


def _judged_on(points: Sequence[Point]) -> str:
    return " or ".join(dict.fromkeys(point.judged_on for point in points))


def _told(point: Point, standing: Standing, objective: Objective | None) -> str:
    fairer = ""
    if objective is not None:
        fairer = f"{objective} {in_points(standing.gain(objective))} {'more' if objective.RISES else 'less'}, "
    return f"by {point.candidate.made_by}, {fairer}{_counts(standing)}"


def _counts(standing: Standing) -> str:
    repair, breakage = standing.repair, standing.breakage
    return (
        f"{repair.count:,} of {repair.total:,} repaired and {breakage.count:,} of {breakage.total:,} broken "
        f"({percent(breakage.value)})"
    )


def _nothing(points: Sequence[Point], budget: Budget, limits: _Limits, rule: str, where: str, wanted: str) -> Choice:
    """No point keeps the budget: the best of those beyond it, and what it does."""
    standings = {n: getattr(point, where) or point.seen for n, point in enumerate(points)}
    objective = limits.objective
    gains = {n: s.repair.value if objective is None else s.gain(objective) for n, s in standings.items()}
    repairing = [n for n in standings if standings[n].repair.count and gains[n] > 0]
    whole = f"none of {counted(len(points), 'candidate')}"
    if not repairing:
        nothing = "repairs anything" if objective is None else f"makes the {objective} better"
        return Choice(None, budget, rule, f"{whole} {nothing}", objective=objective)
    beyond = min(repairing, key=lambda n: (points[n].never_broken, standings[n].breakage.value, -gains[n]))
    more = ["keeps all never-break inputs right"] if any(point.never_broken for point in points) else []
    more += ["keeps every class within its limit"] if budget.max_class_drop else []
    more += ["keeps every group within its limit"] if budget.max_group_drop else []
    more += [] if objective is None else [f"makes the {objective} better"]
    best = f"the best beyond the budget, by {points[beyond].candidate.made_by}, has {_counts(standings[beyond])}"
    if points[beyond].never_broken:
        best += f" and gets {counted(points[beyond].never_broken, 'never-break input')} wrong"
    why = f"{whole} {' and '.join([wanted, *more])}; {best}"
    return Choice(None, budget, rule, why, beyond=beyond, objective=objective)
