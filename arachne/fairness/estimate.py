"""Intervals of an objective's value: before, after, and of the change, from the same inputs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from arachne.decisions.decisions import Array
from arachne.fairness.base import Grouped, Objective

DRAWS, MIN_DRAWS, MAX_DRAWN_NUMBERS = 4000, 400, 4_000_000
"""Number of draws; fewer, so that at most so many numbers are drawn, where groups and classes are very many."""

SLOPE_DRAWS, MIN_SLOPE_DRAWS, MAX_SLOPE_NUMBERS, MAX_SLOPE_CELLS = 64, 4, 2_000_000, 512
"""Number of draws that a slope is the mean over; fewer where groups and classes are many; beyond the last, none."""

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


def slopes(objective: Objective, right: Array, totals: Array) -> Array:
    """Return how the cost changes with every right input of a group and class, `(groups, classes)`.

    It is the slope of the mean cost over what counts of this size leave possible: a maximum then has one everywhere,
    and a gap that may well be chance a small one.

    Args:
        objective: Whose cost.
        right: Inputs that are right, by group and class `(groups, classes)`; not always whole numbers.
        totals: Inputs, by group and class `(groups, classes)`.
    """
    shape = right.shape
    if not objective.BY_CLASS:
        right, totals = right.sum(axis=1, keepdims=True), totals.sum(axis=1, keepdims=True)
    found = np.zeros(right.shape)
    if right.size > MAX_SLOPE_CELLS:
        return np.zeros(shape)
    shares = np.clip((right + 2 * PRIOR) / (totals + 4 * PRIOR), 0.0, 1.0)
    deviations = np.sqrt(np.maximum(totals * shares * (1 - shares), PRIOR))
    draws = min(SLOPE_DRAWS, max(MIN_SLOPE_DRAWS, MAX_SLOPE_NUMBERS // right.size**2))
    around = right + deviations * np.random.default_rng(0).standard_normal((draws, *right.shape))
    for cell in zip(*np.nonzero(totals), strict=True):
        step = np.zeros(right.shape)
        step[cell] = deviations[cell] / 2
        change = objective.cost(around + step, totals) - objective.cost(around - step, totals)
        found[cell] = np.mean(change) / deviations[cell]
    return np.broadcast_to(found, shape)


def _estimate(value: float, draws: Array) -> Estimate:
    low, high = np.percentile(draws, (2.5, 97.5)).tolist()
    return Estimate(value, min(low, value), max(high, value))
