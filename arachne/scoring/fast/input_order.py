"""InputOrder: hard inputs first, so that bad candidates are dropped early."""

from __future__ import annotations

import numpy as np

from arachne.model.values import Array

DECAY = 0.8
"""An input's deficit is a moving average: DECAY * before + (1 - DECAY) * now."""

SORT_INTERVAL = 4
"""Generations from one sort to the next: a sort costs about as much as evaluating a few candidates."""


class InputOrder:
    """The inputs ordered by their candidates' recent deficits, then by the original model's margin.

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
        """Record the deficits of a run of inputs.

        Args:
            rows: The run, by its position in the order.
            costs: The summed deficits of each of its inputs over all candidates, `(run,)`.
            candidates: The number of candidates.
        """
        self._sums[rows] += costs
        self._looked[rows] += candidates

    def renew(self) -> bool:
        """Renew the order after a generation; return whether it has changed."""
        self._generations += 1
        # The first generations break most inputs, later ones few: sort after the first two, then after every fourth.
        if self._generations > 2 and self._generations % SORT_INTERVAL:
            return False
        seen = self._looked > 0
        rows = self.order[seen]
        self._cost[rows] = DECAY * self._cost[rows] + (1 - DECAY) * self._sums[seen] / self._looked[seen]
        self._known[rows] = DECAY * self._known[rows] + (1 - DECAY)
        self._sums[:] = 0
        self._looked[:] = 0
        self.order = self._by_margin[np.argsort(-self._cost[self._by_margin], kind="stable")]
        return True

    def reaching(self, total: float) -> int:
        """Return how many inputs, in order, usually reach this total deficit; 0 if all of them together do not."""
        known = np.maximum(self._known[self.order], 1 - DECAY)
        reached = np.cumsum(self._cost[self.order] / known) >= total
        return int(np.argmax(reached)) + 1 if reached[-1] else 0
