"""Hard inputs first: the order in which candidates meet the inputs, so that bad ones are found out early."""

from __future__ import annotations

import numpy as np

from arachne.values import Array

MEMORY = 0.8
"""How much of what was known about an input is kept when something new is learnt."""

EVERY = 4
"""The order is made anew after so many generations: sorting costs about as much as judging a few candidates."""


class HardFirst:
    """An order of inputs: by what they cost candidates lately, then by the original model's margin.

    Args:
        margins: Score of the true class minus the best other one under the original model, `(n,)`.
    """

    def __init__(self, margins: Array) -> None:
        self._by_margin = np.argsort(margins, kind="stable")
        self.order = self._by_margin
        self._cost = np.zeros(len(margins))
        self._known = np.zeros(len(margins))
        self._sums = np.zeros(len(margins))
        self._met = np.zeros(len(margins))
        self._generations = 0

    def note(self, rows: slice, costs: Array, candidates: int) -> None:
        """So many candidates met a run of the order, and this is what its inputs cost them in sum."""
        self._sums[rows] += costs
        self._met[rows] += candidates

    def renew(self) -> bool:
        """A generation is over; returns whether the order has changed."""
        self._generations += 1
        # The first generations break most inputs, later ones few: learn at once, then now and then.
        if self._generations > 2 and self._generations % EVERY:
            return False
        met = self._met > 0
        rows = self.order[met]
        self._cost[rows] = MEMORY * self._cost[rows] + (1 - MEMORY) * self._sums[met] / self._met[met]
        self._known[rows] = MEMORY * self._known[rows] + (1 - MEMORY)
        self._sums[:] = 0
        self._met[:] = 0
        self.order = self._by_margin[np.argsort(-self._cost[self._by_margin], kind="stable")]
        return True

    def reaching(self, total: float) -> int:
        """How many inputs, in order, usually cost this much together; 0 where all of them do not."""
        known = np.maximum(self._known[self.order], 1 - MEMORY)
        reached = np.cumsum(self._cost[self.order] / known) >= total
        return int(np.argmax(reached)) + 1 if reached[-1] else 0
