"""The error band: how far what a route finds may lie from what the plain evaluator finds.

Two computations of one score differ by some roundings of the numbers summed on the way. A route tells how large those
numbers are (`scale`); how many roundings it takes is measured, on whole sets of inputs, wherever the plain evaluator
was asked anyway, and the band is `SAFETY` times the largest difference seen. Differences are sums of many small
roundings, so the largest of some ten thousand is already far out, and a band so many times as wide is out of reach.
Where fewer inputs could be compared, or inputs that are mostly copies of each other, the band is wider still.

For a sum over inputs the bands of all inputs added up bound the difference, but that takes every input to be off by
its whole band, in one direction. What is allowed for is the share of it at which the *mean* input of a candidate is off
by as much as the *worst* input of all candidates so far, all in one direction (`FIRST_SHARE`, 1 / `SAFETY`); for few
inputs, or few that weigh much, the root of the squared bands if that is more; and several times the largest share that
was ever used up. After some sums were compared, half of that is allowed for at least: what all inputs have in common is
the rounding of a changed weight, half a rounding of what the band has `SAFETY` of.
"""

from __future__ import annotations

import math

import numpy as np

from arachne.values import Array

ROUNDING = float(np.finfo(np.float32).eps)

SAFETY = 4.0
"""The band is so many times wider than the largest difference of an input's scores."""

NARROWEST = 2.0
"""Roundings the band has at least, however well two computations agreed so far."""

OWN = 0.5
"""Roundings of the evaluator's own arithmetic on scores: a difference, a sum of exponentials, a logarithm."""

WIDEST = 4096.0
"""A route further off than this many roundings computes something else, or in another precision."""

ENOUGH = 2000
"""How many different inputs' scores have to be compared before `SAFETY` is enough."""

SUM_SAFETY = 8.0
"""As `SAFETY`, for sums, of which there are fewer to learn from."""

FIRST_SHARE = 1 / SAFETY
"""The share of the added bands that is allowed for at least, until sums were compared."""

SMALLEST_SHARE = 1 / (2 * SAFETY)
"""The same afterwards."""

SUMS = 16
"""How many sums have to be compared for that."""

FEW = 2.0
"""Few inputs cannot cancel each other: a sum may be off by this many times the root of its squared bands at least."""

LARGEST = 1e30
"""Candidates with larger numbers are near the end of float32, where one computation overflows before the other."""


def differences(route: Array, plain: Array, labels: Array) -> Array:
    """How far the scores of each input are apart, relative to that of the true class, `(n,)`."""
    off = route - plain
    return np.asarray(np.abs(off - off[np.arange(len(labels)), labels][:, None]).max(axis=1))


class Band:
    """The width of the band, learnt from differences."""

    def __init__(self) -> None:
        self.seen = 0.0
        """The largest difference seen, in roundings."""
        self.compared = 0
        """How many different inputs' scores were compared, once for every candidate."""
        self.seen_share = 0.0
        """The largest difference of a sum, as a share of the added bands."""
        self.sums = 0
        """How many sums were compared."""

    @property
    def roundings(self) -> float:
        """Half the band's width, in roundings."""
        few = math.sqrt(max(1.0, ENOUGH / max(1, self.compared)))
        return few * (max(NARROWEST, SAFETY * self.seen) + OWN)

    @property
    def usable(self) -> bool:
        """Whether the route is close enough to be of use."""
        return self.seen <= WIDEST

    def learn(self, route: Array, scale: Array, plain: Array, labels: Array) -> bool:
        """Compare one candidate's scores on a route and plainly; returns whether they were within the band.

        What counts is each score's distance from that of the true class: margins and losses depend on nothing else.

        Args:
            route: Scores on the route `(n, classes)`.
            scale: Their scale `(n,)`.
            plain: Scores of the plain evaluator `(n, classes)`.
            labels: True classes `(n,)`.
        """
        before = self.roundings
        difference = differences(route, plain, labels)
        known = np.isfinite(difference) & (scale < LARGEST)
        found = difference[known] / (ROUNDING * np.maximum(scale[known], np.finfo(np.float32).tiny))
        largest = float(found.max(initial=0.0))
        self.seen = max(self.seen, largest)
        if self.compared < ENOUGH:  # equal inputs round equally, and are seen once
            self.compared += len(np.unique(plain[known], axis=0))
        return largest <= before

    def learn_sum(self, difference: float, slack: float) -> bool:
        """Compare one candidate's total on a route and plainly, `slack` being the added bands of its inputs."""
        found = abs(difference) / slack if slack > 0 else 0.0
        within = found <= self._share
        self.seen_share = max(self.seen_share, found)
        self.sums += 1
        return within

    def sum_error(self, slack: Array, squares: Array) -> Array:
        """The most a sum may be off, given the added bands of its inputs and the sum of their squares."""
        return np.minimum(slack, np.maximum(self._share * slack, FEW * np.sqrt(squares)))

    @property
    def _share(self) -> float:
        return max(SMALLEST_SHARE if self.sums >= SUMS else FIRST_SHARE, SUM_SAFETY * self.seen_share)

    def error(self, scale: Array) -> Array:
        """The most a margin or a loss may be off at this scale."""
        error: Array = np.float32(self.roundings * ROUNDING) * scale
        error[~(scale < LARGEST)] = np.inf
        return error
