"""Select one point of a front: the most repaired within a budget, by a careful estimate or with a guarantee."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import bdtr

from arachne.choose.budget import Budget, Choice
from arachne.choose.careful import best_of, select_carefully, share_broken
from arachne.choose.luck import Luck
from arachne.data.grouping import MAX_GROUPS
from arachne.evidence.group_summary import format_points as in_points
from arachne.fairness import Objective
from arachne.model.values import Array
from arachne.scoring.by_input import fewest_for_drop, fewest_inputs, p_above_by_input, p_drop_above
from arachne.scoring.outcome import Baseline, Outcome
from arachne.search.measured import MeasuredCandidate
from arachne.text import percent, pluralise


@dataclass(frozen=True)
class _Limits:
    """The limits of a point beside the break rate, and the objective.

    Attributes:
        classes: How far the accuracy of each class may fall `(classes,)`.
        groups: How far the accuracy of a group may fall, by column and value.
        objective: The fairness objective.
    """

    classes: Array
    groups: Mapping[tuple[str, str], float]
    objective: Objective | None

    @property
    def best(self) -> str:
        """The criterion among the points within a budget, in words."""
        if self.objective is None:
            return "most repaired"
        return f"{'highest' if self.objective.RISES else 'smallest'} {self.objective}"


def select_point(
    points: Sequence[MeasuredCandidate], budget: Budget, names: Sequence[str], objective: Objective | None = None
) -> Choice:
    """Select the point that repairs most within a budget. Held-out inputs are never used.

    Args:
        points: The front.
        budget: The budget.
        names: The model's classes in order.
        objective: A fairness objective with its column; the fairest point is then selected, not the most repaired.

    Raises:
        UsageError: The budget names a class the model does not have, or a group that the data does not have.
    """
    limits = limits_of(points, budget, names, objective)
    if budget.confidence is not None:
        return _select_with_guarantee(points, budget, limits)
    allowed = [
        n
        for n, point in enumerate(points)
        if _has_valid_counts(point, budget) and _keeps_limits(point, point.selection_outcome, limits)
    ]
    index, within, luck = select_carefully(points, allowed, budget, objective)
    costs = [f"break clearly less than the budget of {percent(budget.max_break)}"] if budget.limits_breaks else []
    if budget.max_drop is not None:
        costs.append(f"lower the accuracy on other inputs by clearly less than {percent(budget.max_drop)}")
    rule = f"{limits.best} of those that {' and '.join(costs)}, counted {_judged_on(points)}"
    if index is None:
        return _choose_none(
            points, budget, limits, rule, "selection_outcome", _costs_of_one(budget, "clearly less than")
        )
    outcome = points[index].selection_outcome
    why = (
        _describe(points[index], outcome, objective)
        + _expect(points[index], luck)
        + _passed_over(points, index, within)
    )
    return Choice(index, budget, rule, why, tuple(within), objective=objective)


def limits_of(
    points: Sequence[MeasuredCandidate], budget: Budget, names: Sequence[str], objective: Objective | None = None
) -> _Limits:
    """Resolve the limits of points; arguments as for `select_point`."""
    groups: Mapping[tuple[str, str], float] = {}
    if budget.max_group_drop and points:
        baseline = points[0].seen.baseline
        named = [column for column in baseline.columns if objective is None or column == objective.group_column]
        every = {column: baseline.by(column).names for column in baseline.columns}
        few = {column: values for column, values in every.items() if len(values) <= MAX_GROUPS}
        groups = budget.group_limits(few, named)
    return _Limits(budget.class_limits(names), groups, objective)


def _select_with_guarantee(points: Sequence[MeasuredCandidate], budget: Budget, limits: _Limits) -> Choice:
    """Learn-then-Test: walk from the safest point to the boldest, and stop at the first that fails an exact test.

    The order, and which points are left out of it, depend only on inputs the search saw. So the tests on the inputs set
    aside are a fixed sequence: the chance that any point that passed breaks more than the budget is at most 1 -
    confidence. Dropping points that passed, for any reason, does not change that.
    """
    sure = f"{100 * (budget.confidence or 0):g} %"
    baseline = next((point.choose.baseline for point in points if point.choose is not None), None)
    several = baseline is not None and baseline.owners is not None
    test = "test that counts an input as one draw," if several else "binomial test"
    if budget.max_drop is not None:
        costs = [f"break at most {percent(budget.max_break)}"] if budget.limits_breaks else []
        costs.append(f"lower the accuracy on other inputs by at most {percent(budget.max_drop)}")
        rule = (
            f"{limits.best} of those that {' and '.join(costs)} with {sure} confidence (a betting test "
            "on inputs the search never had, from the safest point on, up to the first that fails)"
        )
    else:
        rule = (
            f"{limits.best} of those that break at most {percent(budget.max_break)} with {sure} confidence (exact "
            f"{test} on inputs the search never had, from the safest point on, up to the first that fails)"
        )
    missing = explain_missing(budget, baseline)
    if missing is not None:
        return Choice(None, budget, rule, missing, objective=limits.objective)
    order = [number for number, point in enumerate(points) if _keeps_limits(point, point.search_outcome, limits)]
    order.sort(key=lambda number: (_cost(points[number].search_outcome, budget), points[number].size))
    passed: list[int] = []
    for number in order:
        if p_above(points[number].choose, budget) > 1 - (budget.confidence or 0):
            break
        passed.append(number)
    within = [number for number in passed if _keeps_drops(points[number].choose, limits)]
    if not within:
        wanted = f"is shown to break at most {percent(budget.max_break)}"
        if budget.max_drop is not None:
            wanted = f"is shown to be one that {_costs_of_one(budget, 'at most')}"
        return _choose_none(points, budget, limits, rule, "choose", wanted)
    index = best_of(within, points, [point.search_outcome for point in points], limits.objective)
    chosen = points[index].choose or points[index].seen  # there is a `choose`, or no test would have passed
    description = _describe(points[index], chosen, limits.objective)
    more = f"more than {percent(budget.max_break)}" if budget.max_drop is None else "costing more"
    why = f"{description}, p = {p_above(chosen, budget):.2g} for {more}"
    return Choice(index, budget, rule, why, tuple(within), objective=limits.objective)


def p_above(outcome: Outcome | None, budget: Budget) -> float:
    """The p-value of "breaks more than the budget": P(Bin(n, max_break) <= broken); 1 without inputs.

    Where inputs have several decisions, `p_above_by_input` takes its place, which holds for any correlation in them.
    A drop of accuracy is tested by `p_drop_above`; of two limits the larger p-value counts.
    """
    if outcome is None or not outcome.breakage.total:
        return 1.0
    baseline = outcome.baseline
    p_drop = 0.0
    if budget.max_drop is not None:
        p_drop = p_drop_above(baseline.right, outcome.right, ~baseline.negative, baseline.owners, budget.max_drop)
    return max(p_drop, _p_breaks_above(outcome, budget)) if budget.limits_breaks else p_drop


def _p_breaks_above(outcome: Outcome, budget: Budget) -> float:
    owners = outcome.baseline.owners
    if owners is not None:
        return p_above_by_input(~outcome.right, outcome.baseline.right, owners, budget.max_break)
    return float(bdtr(outcome.breakage.count, outcome.breakage.total, budget.max_break))


def explain_missing(budget: Budget, kept: Baseline | None) -> str | None:
    """Say why a guarantee cannot be given with the inputs kept for choosing; None if there are enough of them."""
    if budget.confidence is None:
        return None
    several = kept is not None and kept.owners is not None
    fewest = budget.fewest_positives
    if several and budget.limits_breaks:
        fewest = fewest_inputs(budget.max_break, 1 - budget.confidence)
    if budget.max_drop is not None:
        fewest = max(fewest, fewest_for_drop(budget.max_drop, 1 - budget.confidence))
    inputs = 0 if kept is None else kept.right_inputs
    return explain_too_few(budget, inputs, fewest) if inputs < fewest else None


def explain_too_few(budget: Budget, kept: int, fewest: int | None = None) -> str:
    """Say why a guarantee cannot be given, and how many inputs it takes; `budget.fewest_positives` when None."""
    fewest = budget.fewest_positives if fewest is None else fewest
    most = f"at most {percent(budget.max_break)} broken"
    if budget.max_drop is not None:
        most = str(replace(budget, confidence=None, max_class_drop={}, max_group_drop={}))
    return (
        f"a guarantee of {most} with {100 * (budget.confidence or 0):g} % "
        f"confidence takes {fewest:,} inputs that are right and kept from the search, and there "
        f"{'is' if kept == 1 else 'are'} {kept:,}; give more data, a larger budget or less confidence"
    )


def _cost(outcome: Outcome, budget: Budget) -> float:
    """Return what points are ordered by, the safest first: broken inputs, or the drop where only that is limited."""
    return outcome.breakage.value if budget.limits_breaks else outcome.drop.value


def _costs_of_one(budget: Budget, how: str) -> str:
    """Describe the cost of a point within the budget: `breaks clearly less than 0.50 %`."""
    costs = [f"breaks {how} {percent(budget.max_break)}"] if budget.limits_breaks else []
    if budget.max_drop is not None:
        costs.append(f"lowers the accuracy on other inputs by {how} {percent(budget.max_drop)}")
    return " and ".join(costs)


def _has_valid_counts(point: MeasuredCandidate, budget: Budget) -> bool:
    """Tell whether a point's counts hold for a budget.

    A minimised patch inherits its larger patch's out-of-fold counts, which are valid only for budgets of at least the
    break rate it was minimised within.
    """
    return point.minimised_for is None or point.minimised_for <= budget.max_break


def _keeps_limits(point: MeasuredCandidate, outcome: Outcome, limits: _Limits) -> bool:
    """Tell whether a point repairs or is fairer, breaks no never-break input, and keeps class and group limits.

    An outcome out of fold is that of siblings; the point itself must repair some of the inputs it was fitted to.
    """
    repairs = outcome.repair.count > 0 and point.seen.repair.count > 0
    better = repairs if limits.objective is None else outcome.gain(limits.objective) > 0
    return better and not point.never_broken and _keeps_drops(outcome, limits)


def _keeps_drops(outcome: Outcome | None, limits: _Limits) -> bool:
    if outcome is None or np.any(outcome.class_drops(len(limits.classes)) > limits.classes + 1e-12):
        return False
    drops = {column: outcome.group_drops(column) for column in dict.fromkeys(column for column, _ in limits.groups)}
    return all(drops[column].get(value, 0.0) <= most + 1e-12 for (column, value), most in limits.groups.items())


def _judged_on(points: Sequence[MeasuredCandidate]) -> str:
    words = {"out of fold": "on inputs that the run which made each count had not seen"}
    return " or ".join(dict.fromkeys(words.get(point.selection_basis, point.selection_basis) for point in points))


def _describe(point: MeasuredCandidate, outcome: Outcome, objective: Objective | None) -> str:
    fairer = ""
    if objective is not None:
        fairer = f"{objective} {in_points(outcome.gain(objective))} {'more' if objective.RISES else 'less'}, "
    return f"by {point.candidate.made_by}, {fairer}{_counts(outcome)}"


def _passed_over(points: Sequence[MeasuredCandidate], index: int, within: Sequence[int]) -> str:
    """Describe the matrix that was passed over, whose better counts are within chance of those of single weights."""
    taken = points[index].selection_outcome
    ahead = [
        point.selection_outcome.repair.value >= taken.repair.value
        and point.selection_outcome.breakage.value < taken.breakage.value
        for point in (points[n] for n in within if points[n].candidate.edit is not None)
    ]
    if points[index].candidate.edit is not None or not any(ahead):
        return ""
    return "; a change of a whole matrix is not ahead of it by more than chance"


def _expect(point: MeasuredCandidate, luck: Luck) -> str:
    """Say what to expect of new inputs, where the best of many points was picked, or a mean of runs breaks less."""
    repair, breakage, share = point.selection_outcome.repair, point.selection_outcome.breakage, share_broken(point)
    if not (luck.repair or luck.broken) and share == 1:
        return ""
    reasons = ["runs that break more than their patch"] if share < 1 else []
    reasons += ["the luck of the pick"] if luck.repair or luck.broken else []
    broken = (share * breakage.count + luck.broken) / max(1, breakage.total)
    repaired = percent(max(0.0, repair.value - luck.repair))
    return f"; allowing for {' and '.join(reasons)}, {repaired} and {percent(broken)}"


def _counts(outcome: Outcome) -> str:
    repair, breakage = outcome.repair, outcome.breakage
    return (
        f"{repair.count:,} of {repair.total:,} repaired and {breakage.count:,} of {breakage.total:,} broken "
        f"({percent(breakage.value)})"
    )


def _choose_none(
    points: Sequence[MeasuredCandidate], budget: Budget, limits: _Limits, rule: str, where: str, wanted: str
) -> Choice:
    """Return the choice where no point keeps the budget; it describes the best point beyond it."""
    outcomes = {n: getattr(point, where) or point.seen for n, point in enumerate(points)}
    objective = limits.objective
    gains = {n: s.repair.value if objective is None else s.gain(objective) for n, s in outcomes.items()}
    repairing = [n for n in outcomes if outcomes[n].repair.count and points[n].seen.repair.count and gains[n] > 0]
    whole = f"none of {pluralise(len(points), 'candidate')}"
    if not repairing:
        nothing = "repairs anything" if objective is None else f"makes the {objective} better"
        return Choice(None, budget, rule, f"{whole} {nothing}", objective=objective)
    beyond = min(repairing, key=lambda n: (points[n].never_broken, outcomes[n].breakage.value, -gains[n]))
    more = ["keeps all never-break inputs right"] if any(point.never_broken for point in points) else []
    more += ["keeps every class within its limit"] if budget.max_class_drop else []
    more += ["keeps every group within its limit"] if budget.max_group_drop else []
    more += [] if objective is None else [f"makes the {objective} better"]
    broken = outcomes[beyond].breakage
    near = budget.limits_breaks and broken.value <= budget.max_break
    where = "that is within it, though not clearly" if near else "beyond the budget"
    best = f"the best {where}, by {points[beyond].candidate.made_by}, has {_counts(outcomes[beyond])}"
    if points[beyond].never_broken:
        best += f" and gets {pluralise(points[beyond].never_broken, 'never-break input')} wrong"
    why = f"{whole} {' and '.join([wanted, *more])}; {best}"
    if budget.limits_breaks and budget.max_break * broken.total < 1:
        right = pluralise(broken.total, "right input")
        why += f"; {percent(budget.max_break)} of {right} is less than one: give more data"
    return Choice(None, budget, rule, why, beyond=beyond, objective=objective)
