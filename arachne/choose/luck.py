"""The luck in a choice: the best of many candidates looks better than it is, and resampling says by how much.

The inputs that candidates were judged on are drawn anew many times, with replacement. In each draw the rule picks its
best candidate; that one looks better in the draw than it does on all inputs, by as much, on average, as the candidate
picked on all inputs looks better than it will on new ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from arachne.model.values import Array
from arachne.scoring.outcome import Outcome

DRAWS = 64
"""How often inputs are drawn."""

POISSON = np.cumsum(np.exp(-1.0) / np.cumprod([1.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]))
"""The chance that an input is drawn at most 0, 1, 2, … times."""

Pick = Callable[[Array, Array], int | None]
"""Picks a candidate by the repair rates and the numbers of broken inputs of all of them, `(candidates,)` each."""


@dataclass(frozen=True)
class Luck:
    """How much better a picked candidate looks than it is.

    Attributes:
        repair: By how much its repair rate is too high.
        broken: By how many its broken inputs are too few.
    """

    repair: float = 0.0
    broken: float = 0.0


@dataclass(frozen=True, eq=False)
class Resamples:
    """Repair rates and broken inputs of candidates, on the inputs they were judged on and in every draw of these.

    Attributes:
        repair: Repair rates `(candidates, 1 + draws)`; the first column is that of all inputs.
        broken: Numbers of broken inputs, of the same shape.
    """

    repair: Array
    broken: Array

    @classmethod
    def of(cls, outcomes: Sequence[Outcome]) -> Resamples | None:
        """Draw the inputs of some outcomes; None if these are of different inputs."""
        baseline = outcomes[0].baseline
        for one in outcomes:
            same = one.baseline is baseline or np.array_equal(one.baseline.rows, baseline.rows)
            if not same or not np.array_equal(one.baseline.negative, baseline.negative):
                return None
        right = np.stack([one.right for one in outcomes])
        owners = np.asarray(baseline.rows if baseline.owners is None else baseline.owners)
        negative = np.flatnonzero(baseline.negative & right.any(axis=0))
        positive = np.flatnonzero(baseline.right & ~right.all(axis=0))
        repaired = _sum_draws(right[:, negative], owners[negative])
        broken = _sum_draws(~right[:, positive], owners[positive])
        return cls(repaired / max(1, int(baseline.negative.sum())), broken)

    def luck(self, pick: Pick) -> Luck:
        """Return the luck of a rule's picks."""
        found = []
        for draw in range(1, self.repair.shape[1]):
            taken = pick(self.repair[:, draw], self.broken[:, draw])
            if taken is not None:
                repair, broken = self.repair[taken, draw] - self.repair[taken, 0], self.broken[taken]
                found.append((repair, broken[0] - broken[draw]))
        if not found:
            return Luck()
        repair, broken = np.mean(found, axis=0)
        return Luck(max(0.0, float(repair)), max(0.0, float(broken)))


def _sum_draws(hits: Array, owners: Array) -> Array:
    """Count the hits `(candidates, n)` over all inputs and in every draw, float64 `(candidates, 1 + draws)`."""
    weights = np.concatenate([np.ones((len(owners), 1), np.float32), draw_counts(owners)], axis=1)
    return np.asarray(hits.astype(np.float32) @ weights, np.float64)


def draw_counts(owners: Array) -> Array:
    """Return how often each input is drawn, float32 `(n, draws)`.

    The counts of an input depend on its number alone: whether another one is among them changes nothing.
    """
    mixed: Array = owners.astype(np.uint64)[:, None] * np.uint64(DRAWS) + np.arange(DRAWS, dtype=np.uint64)
    mixed = mixed * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ np.right_shift(mixed, np.uint64(shift))) * np.uint64(factor)
    uniform = np.right_shift(mixed ^ np.right_shift(mixed, np.uint64(31)), np.uint64(11)) * 2.0**-53
    return np.asarray(np.searchsorted(POISSON, uniform), np.float32)
