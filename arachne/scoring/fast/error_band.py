"""The error band: how far a route's scores may lie from the plain evaluator's.

One input
    Two computations of one score differ by a few roundings of the summed numbers. A route returns the size of those
    numbers (`scale`). The number of roundings is measured wherever exact scores were computed anyway:

        difference = |(route - plain) - (route - plain of the true class)|, the largest over the classes
        seen       = the largest difference / (eps * scale) so far
        error      = roundings * eps * scale
        roundings  = (max(MIN_ROUNDINGS, SAFETY * seen) + OWN_ROUNDINGS) * sqrt(max(1, MIN_COMPARED_SCORES / compared))

    A difference is a sum of many small roundings, so the largest of ten thousand is already an extreme one, and SAFETY
    times that does not occur. The square root widens the band while few different inputs were compared.

A sum over inputs
    With s_i the slack of each input (its own bound), the sum of all s_i bounds the difference of the totals, but it
    assumes that every input is off by its whole band in the same direction. The error allowed for is

        sum_error = min(sum s_i, max(share * sum s_i, ROOT_FACTOR * sqrt(sum s_i**2)))
        share     = max(FIRST_SHARE, SUM_SAFETY * the largest |difference of totals| / sum s_i so far)

    FIRST_SHARE = 1 / SAFETY is the share at which the *mean* input is off by as much as the *worst* input seen so far.
    After MIN_COMPARED_TOTALS comparisons, LATER_SHARE, half of it, replaces it. The square root covers few inputs, or
    few with large weights, whose errors cannot cancel.
"""

from __future__ import annotations

import math

import numpy as np

from arachne.model.values import Array
from arachne.scoring.fast.routes.base import MAX_SCALE, ROUNDING

SAFETY = 4.0
"""The band is this many times as wide as the largest difference seen."""

MIN_ROUNDINGS = 2.0
"""The smallest half width of the band, in roundings, however well two computations agreed so far."""

OWN_ROUNDINGS = 0.5
"""Roundings of the evaluator's arithmetic on scores: a difference, a sum of exponentials, a logarithm."""

MAX_ROUNDINGS = 4096.0
"""A route further off than this many roundings computes something else, or in another precision."""

MIN_COMPARED_SCORES = 2000
"""The number of different inputs' scores that must be compared before `SAFETY` is enough."""

SUM_SAFETY = 8.0
"""The safety factor for sums; there are fewer of them to learn from."""

FIRST_SHARE = 1 / SAFETY
"""The smallest share of the summed slacks that is allowed for, until `MIN_COMPARED_TOTALS` were compared."""

LATER_SHARE = 1 / (2 * SAFETY)
"""The smallest share afterwards."""

MIN_COMPARED_TOTALS = 16
"""The number of totals that must be compared before `LATER_SHARE` applies."""

ROOT_FACTOR = 2.0
"""A total may always be off by this many times the root of the summed squared slacks: few errors do not cancel."""


def differences(route: Array, plain: Array, labels: Array) -> Array:
    """Return the difference of each input's scores, `(n,)`: the largest over classes, relative to the true class."""
    off = route - plain
    return np.asarray(np.abs(off - off[np.arange(len(labels)), labels][:, None]).max(axis=1))


class ErrorBand:
    """The width of the band, learnt from differences."""

    def __init__(self) -> None:
        self.seen = 0.0
        """The largest difference seen, in roundings."""
        self.compared = 0
        """The number of scores compared; equal inputs of one candidate count once."""
        self.seen_share = 0.0
        """The largest difference of a total, as a share of its summed slacks."""
        self.sums = 0
        """The number of totals compared."""

    @property
    def roundings(self) -> float:
        """Half the band's width, in roundings."""
        few = math.sqrt(max(1.0, MIN_COMPARED_SCORES / max(1, self.compared)))
        return few * (max(MIN_ROUNDINGS, SAFETY * self.seen) + OWN_ROUNDINGS)

    @property
    def usable(self) -> bool:
        """Whether the route is close enough to be of use."""
        return self.seen <= MAX_ROUNDINGS

    def learn(self, route: Array, scale: Array, plain: Array, labels: Array) -> bool:
        """Compare a candidate's scores on a route with the plain ones; return whether they were within the band.

        Only distances from the true class's score count: margins and losses depend on nothing else.

        Args:
            route: Scores on the route `(n, classes)`.
            scale: Their scale `(n,)`.
            plain: Scores of the plain evaluator `(n, classes)`.
            labels: True classes `(n,)`.
        """
        before = self.roundings
        difference = differences(route, plain, labels)
        known = np.isfinite(difference) & (scale < MAX_SCALE)
        found = difference[known] / (ROUNDING * np.maximum(scale[known], np.finfo(np.float32).tiny))
        largest = float(found.max(initial=0.0))
        self.seen = max(self.seen, largest)
        if self.compared < MIN_COMPARED_SCORES:  # equal inputs round equally, so they count once
            self.compared += len(np.unique(plain[known], axis=0))
        return largest <= before

    def learn_sum(self, difference: float, slack: float) -> bool:
        """Compare a candidate's estimated total with the exact one; return whether it was within `sum_error`'s share.

        Args:
            difference: Estimate minus exact total.
            slack: The summed slacks of its inputs.
        """
        found = abs(difference) / slack if slack > 0 else 0.0
        within = found <= self._share
        self.seen_share = max(self.seen_share, found)
        self.sums += 1
        return within

    def sum_error(self, slack: Array, squares: Array) -> Array:
        """Return the largest error of a total, given the sum of its inputs' slacks and the sum of their squares."""
        return np.minimum(slack, np.maximum(self._share * slack, ROOT_FACTOR * np.sqrt(squares)))

    @property
    def _share(self) -> float:
        return max(LATER_SHARE if self.sums >= MIN_COMPARED_TOTALS else FIRST_SHARE, SUM_SAFETY * self.seen_share)

    def error(self, scale: Array) -> Array:
        """Return the largest error of a margin or a loss at this scale."""
        error: Array = np.float32(self.roundings * ROUNDING) * scale
        error[~(scale < MAX_SCALE)] = np.inf
        return error
