"""Hard inputs first: the order in which candidates meet the inputs, so that bad candidates are given up early."""

from __future__ import annotations

import numpy as np

from arachne.values import Array

KEPT = 0.8
"""An input's cost is a moving average: KEPT * before + (1 - KEPT) * now."""

EVERY = 4
"""Generations from one sort to the next: a sort costs about as much as judging a few candidates."""


class HardFirst:
    """Inputs ordered by what they cost candidates lately, then by the original model's margin.

    Args:
        margins: Score of the true class minus the best other one under the original model, `(n,)`.
    """

    def __init__(self, margins: Array) -> None:
        self._by_margin = np.argsort(margins, kind="stable")
        self.order = self._by_margin
        self._cost = np.zeros(len(margins))
        self._known = np.zeros(len(margins))
        self._sums = np.zeros(len(margins))
        self._looked = np.zeros(len(margins))
        self._generations = 0

    def note(self, rows: slice, costs: Array, candidates: int) -> None:
        """Take note of what a run of inputs cost.

        Args:
            rows: The run, by its place in the order.
            costs: What each of its inputs cost all candidates together, `(run,)`.
            candidates: How many candidates looked at it.
        """
        self._sums[rows] += costs
        self._looked[rows] += candidates

    def renew(self) -> bool:
        """Called after each generation; returns whether the order has changed."""
        self._generations += 1
        # The first generations break most inputs, later ones few: sort after the first two, then after every fourth.
        if self._generations > 2 and self._generations % EVERY:
            return False
        seen = self._looked > 0
        rows = self.order[seen]
        self._cost[rows] = KEPT * self._cost[rows] + (1 - KEPT) * self._sums[seen] / self._looked[seen]
        self._known[rows] = KEPT * self._known[rows] + (1 - KEPT)
        self._sums[:] = 0
        self._looked[:] = 0
        self.order = self._by_margin[np.argsort(-self._cost[self._by_margin], kind="stable")]
        return True

    def reaching(self, total: float) -> int:
        """How many inputs, in order, usually cost this much together; 0 where even all of them cost less."""
        known = np.maximum(self._known[self.order], 1 - KEPT)
        reached = np.cumsum(self._cost[self.order] / known) >= total
        return int(np.argmax(reached)) + 1 if reached[-1] else 0
