"""The careful rule: which points keep a budget on new inputs too, as far as counts tell, and which of them is best."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from arachne.choose.budget import Budget
from arachne.choose.luck import Luck, Resamples
from arachne.fairness import Objective
from arachne.model.values import Array
from arachne.plugins.table import SEARCHERS
from arachne.scoring.outcome import Outcome
from arachne.scoring.statistics import Drop, Rate
from arachne.search.measured import MeasuredCandidate

SAFETY_DEVIATIONS, DEVIATIONS_BEYOND_LUCK = 0.7, 0.5
"""The safety margin of the careful estimate: broken + 0.7 √broken must keep the budget, 0.7 deviations of a count.

The best of many similar candidates was partly lucky, so it breaks more of new inputs than of those it was judged on.
Where that luck is measured (`arachne.choose.luck`) it is added to the count, and the margin is smaller.
reports/repairs-at-equal-damage.md shows how often points selected by this rule keep their budgets on held-out inputs.
"""

UNSEEN = 0.5
"""Broken inputs that are added to a count: none of 3,000 broken is no proof that none of the next 3,000 breaks.

It is Jeffreys' estimate of a rate. Drawing the inputs anew cannot show that luck, because none stays none.
"""

BUDGET_SHARES = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1)
"""Shares of a budget that points are picked within, until the pick keeps the whole of it with its luck and margin."""

LEAD_OF_A_MATRIX = 0.75
"""A patch of whole directions has to be ahead of single weights by this many deviations of a repair rate.

A few weights can be read in a review, a matrix of thousands cannot; so a lead that may well be chance does not buy one.
On the study's deciding faults the rule costs nothing (`python -m benchmarks.choosing --print`). A whole deviation costs
a model's errors of all kinds a repair: there, at budgets of 0.5 % and more, training on is ahead by less than that.
"""

CLOSE_REPAIR_RATE = 0.02
"""Repair rates this close to the best count as equal; among these points, the one that breaks least is taken."""

CLOSE_FAIRNESS = 0.005
"""Values of an objective this close to the best count as equal: half a percentage point."""


@dataclass(frozen=True, eq=False)
class Points:
    """The facts that the rule uses beside the counts that points are compared by, `(points,)` each.

    Attributes:
        shares: The share of the inputs broken where it is judged that each point itself is expected to break.
        order: Who comes first among equals: single weights, minimised points, then small changes.
        leads: The deviations of its repair rate that each point has to be ahead of others by.
        total: How many inputs judge what they break.
        negatives: How many inputs judge what they repair.
    """

    shares: Array
    order: Array
    leads: Array
    total: int
    negatives: int

    @classmethod
    def of(cls, points: Sequence[MeasuredCandidate], lead: float = LEAD_OF_A_MATRIX) -> Points:
        """Describe points that are judged on the same inputs; whole directions must lead by `lead`."""
        shares = np.array([share_broken(one) for one in points])
        leads = np.array([lead * changes_matrices(one) for one in points])
        judged = points[0].selection_outcome
        totals = judged.breakage.total, judged.repair.total
        return cls(shares, order_of(points), leads, *totals)

    def within(self, broken: Array, limit: float) -> Array:
        """Tell which points break at most a share of all inputs, bool `(points,)`, by how many they break."""
        return np.asarray(self.shares * broken <= limit * self.total + 1e-9)

    def pick(self, repair: Array, broken: Array, limit: float) -> int | None:
        """Return the best point that breaks at most a share, by repair rates and broken inputs `(points,)`."""
        within = np.flatnonzero(self.within(broken, limit) & (repair > 0))
        if not len(within):
            return None
        share = (np.clip(repair, 0.0, 1.0) * self.negatives + 1) / (self.negatives + 2)  # all of 40 may be chance too
        repair = repair - self.leads * np.sqrt(share * (1 - share) / max(1, self.negatives))
        expected = self.shares * broken
        return int(within[pick_best(repair[within], expected[within], self.order[within], CLOSE_REPAIR_RATE)])


def select_carefully(
    points: Sequence[MeasuredCandidate],
    allowed: Sequence[int],
    budget: Budget,
    objective: Objective | None,
    *,
    lead: float = LEAD_OF_A_MATRIX,
) -> tuple[int | None, list[int], Luck]:
    """Select the best of some points that are safely within a budget.

    The best within the whole budget may keep it by luck; then the best within a smaller share of it is looked at, and
    so on. A point that breaks nothing keeps every budget.

    Returns:
        Its number or None, the numbers of the points that it is the best of, and how lucky the pick was.
    """
    if budget.limits_breaks:  # runs that judge a patch may break less than it does
        allowed = [n for n in allowed if points[n].seen.breakage.value <= budget.max_break + 1e-12]
    chosen = [points[n] for n in allowed]
    plain = budget.limits_breaks and budget.max_drop is None and objective is None and len(chosen) > 1
    drawn = Resamples.of([one.selection_outcome for one in chosen]) if plain else None
    if drawn is None:
        within = [n for n in allowed if keeps_budget(points[n], budget)]
        index = best_of(within, points, [one.selection_outcome for one in points], objective) if within else None
        return index, within, Luck()
    rule, repair, broken = Points.of(chosen, lead), drawn.repair[:, 0], drawn.broken[:, 0]
    for share in (*BUDGET_SHARES, 0.0):
        limit = share * budget.max_break
        taken = rule.pick(repair, broken, limit)
        if taken is None:
            break
        luck = drawn.luck(partial(rule.pick, limit=limit))
        expected = rule.shares[taken] * broken[taken] + luck.broken + UNSEEN
        design = chosen[taken].selection_outcome.breakage.design_effect
        safe = expected + DEVIATIONS_BEYOND_LUCK * math.sqrt(expected * design) <= budget.max_break * rule.total + 1e-9
        if safe or not share:
            return allowed[taken], [allowed[n] for n in np.flatnonzero(rule.within(broken, limit)).tolist()], luck
    return None, [], Luck()


def best_of(
    within: Sequence[int],
    points: Sequence[MeasuredCandidate],
    outcomes: Sequence[Outcome],
    objective: Objective | None,
) -> int:
    """Return the point that repairs most or is fairest; of close ones, the fewest broken, minimised, then smallest.

    Rates are compared, because points may be judged on different inputs. How fair a point is, is the worse of two
    counts: that of the runs on inputs they had not seen, and that of the patch itself on all it was fitted to. The mean
    of runs often goes further than they do, from one side of an even balance to the other, which only the second shows.
    """
    own = [outcomes[n] for n in within]
    if objective is None:
        gains = np.array([one.repair.value for one in own])
    else:
        gains = np.array([min(outcomes[n].gain(objective), points[n].seen.gain(objective)) for n in within])
    broken = np.array([one.breakage.value for one in own])
    close = CLOSE_REPAIR_RATE if objective is None else CLOSE_FAIRNESS
    return within[pick_best(gains, broken, order_of([points[n] for n in within]), close)]


def pick_best(gains: Array, broken: Array, order: Array, close: float) -> int:
    """Return the largest gain; among gains `close` to it the one that breaks fewest, then the first in order."""
    near = gains >= gains.max() - close
    return int(np.lexsort((order, -gains, np.where(near, broken, np.inf)))[0])


def order_of(points: Sequence[MeasuredCandidate]) -> Array:
    """Return the ranks of points among equals `(points,)`: single weights, minimised ones, then small changes."""
    keys = [(changes_matrices(one), one.minimised_from is None, one.size) for one in points]
    ranks = np.empty(len(keys), np.int64)
    ranks[sorted(range(len(keys)), key=keys.__getitem__)] = np.arange(len(keys))
    return ranks


def changes_matrices(point: MeasuredCandidate) -> bool:
    """Tell whether a point changes whole matrices: along directions, or because its searcher does."""
    name = point.candidate.made_by
    return point.candidate.edit is not None or (name in SEARCHERS.ours and SEARCHERS.get(name).CHANGES_MATRICES)


def keeps_budget(point: MeasuredCandidate, budget: Budget) -> bool:
    """Tell whether a point keeps the budget with a margin, both where it is judged and on the seen inputs."""
    both = (point.selection_outcome, point.seen if point.out_of_fold is None else point.selection_outcome)
    share = share_broken(point)
    breaks = not budget.limits_breaks or all(
        cautious_count(one.breakage, share) <= budget.max_break * one.breakage.total + 1e-9 for one in both
    )
    most = budget.max_drop
    return breaks and (most is None or all(_cautious_drop(one.drop, share) <= most for one in both))


def share_broken(point: MeasuredCandidate) -> float:
    """Return the share of the inputs broken out of fold that a point's patch breaks, as its searcher says.

    It is 1 for searchers of others, which are not imported for it.
    """
    name = point.candidate.made_by
    known = point.out_of_fold is not None and name in SEARCHERS.ours
    return float(SEARCHERS.get(name).KEPT_BY_THE_MEAN) if known else 1.0


def _cautious_drop(drop: Drop, share: float) -> float:
    """Return a drop of accuracy with the safety margin added.

    A patch that changes nothing has none.
    """
    expected = share * drop.broken - drop.fixed
    return (expected + SAFETY_DEVIATIONS * drop.deviation) / max(1, drop.total) - 1e-12


def cautious_count(breakage: Rate, share: float) -> float:
    """Add the safety margin to a share of a count; its deviation grows with the design effect of its decisions."""
    expected = share * breakage.count
    return expected + SAFETY_DEVIATIONS * math.sqrt(expected * breakage.design_effect)
