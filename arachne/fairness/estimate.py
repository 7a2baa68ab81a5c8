"""Intervals of an objective's value: before, after, and of the change, from the same inputs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from arachne.decisions.decisions import Array
from arachne.fairness.base import Grouped, Objective

DRAWS, MIN_DRAWS, MAX_DRAWN_NUMBERS = 4000, 400, 4_000_000
"""Number of draws; fewer, so that at most so many numbers are drawn, where groups and classes are very many."""

PRIOR = 0.25
"""Added to each of the four outcomes of an input (right or wrong, before and after): Jeffreys' prior of both shares."""


@dataclass(frozen=True)
class Estimate:
    """A number and its 95 % interval."""

    value: float
    low: float
    high: float

    @property
    def interval(self) -> tuple[float, float]:
        """From the low end to the high one."""
        return self.low, self.high


def estimates(
    objective: Objective, grouped: Grouped, was_right: Array, is_right: Array, design_effect: float = 1.0
) -> tuple[Estimate, Estimate, Estimate]:
    """Estimate the value before, after, and after minus before.

    How many inputs of a group are right both times, once or never is drawn from what these counts leave possible
    (a Dirichlet posterior); each draw gives all three numbers, so that the change's interval knows that both models
    were asked the same inputs.

    Args:
        objective: What is counted.
        grouped: The inputs.
        was_right: Which of them were right, bool `(n,)`.
        is_right: Which of them are right now, bool `(n,)`.
        design_effect: How many decisions are worth one draw, where inputs have several.
    """
    outcomes = np.stack(
        [grouped.right(one) for one in (was_right & is_right, was_right & ~is_right, ~was_right & is_right)]
        + [grouped.right(~was_right & ~is_right)],
        axis=-1,
    ).astype(np.float64)
    totals = grouped.totals
    if not objective.BY_CLASS:
        outcomes, totals = outcomes.sum(axis=1, keepdims=True), totals.sum(axis=1, keepdims=True)
    draws = min(DRAWS, max(MIN_DRAWS, MAX_DRAWN_NUMBERS // max(1, outcomes.size)))
    gammas = np.random.default_rng(0).standard_gamma(outcomes / design_effect + PRIOR, (draws, *outcomes.shape))
    drawn = gammas / gammas.sum(axis=-1, keepdims=True) * totals[..., None]
    pairs = [
        (objective.value(some[..., 0] + some[..., 1], totals), objective.value(some[..., 0] + some[..., 2], totals))
        for some in (outcomes, drawn)
    ]
    (before, after), (drawn_before, drawn_after) = pairs
    return (
        _estimate(float(before), drawn_before),
        _estimate(float(after), drawn_after),
        _estimate(float(after - before), drawn_after - drawn_before),
    )


def _estimate(value: float, draws: Array) -> Estimate:
    low, high = np.percentile(draws, (2.5, 97.5)).tolist()
    return Estimate(value, min(low, value), max(high, value))
