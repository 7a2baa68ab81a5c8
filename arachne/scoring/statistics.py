"""The exact statistics behind a verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scipy.special import bdtr

Z_95 = 1.959963984540054
"""The two-sided 95 % point of the normal distribution."""

LEVEL = 0.05
"""The p-value below which a difference counts as shown."""


@dataclass(frozen=True)
class Rate:
    """A share of some inputs or decisions, and its confidence interval.

    Attributes:
        count: How many of them count.
        total: How many there are.
        draws: How many independent ones are worth as much as these, where inputs have several decisions
            (`arachne.scoring.by_input`); None where each is a draw of its own.
    """

    count: int
    total: int
    draws: float | None = None

    @property
    def value(self) -> float:
        """The share itself; NaN if there are no inputs."""
        return self.count / self.total if self.total else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """Its 95 % interval; everything from 0 to 1 when there are no inputs."""
        return interval(self.count, self.total, self.draws)

    @property
    def design_effect(self) -> float:
        """How many decisions are worth one independent draw; 1 where each is a draw of its own."""
        return self.total / self.draws if self.draws else 1.0


@dataclass(frozen=True)
class Drop:
    """How far accuracy falls: inputs that broke, less those that were fixed, of all.

    Attributes:
        broken: Inputs that were right and are wrong.
        fixed: Inputs that were wrong and are right.
        total: How many inputs there are.
        design_effect: How many decisions are worth one independent draw.
    """

    broken: int
    fixed: int
    total: int
    design_effect: float = 1.0

    @property
    def value(self) -> float:
        """The fall as a share of 1, below 0 for a rise; NaN if there are no inputs."""
        return (self.broken - self.fixed) / self.total if self.total else math.nan

    @property
    def deviation(self) -> float:
        """The standard deviation of the count of broken inputs less fixed ones."""
        net = self.broken - self.fixed
        return math.sqrt(max(0.0, (self.broken + self.fixed - net * net / max(1, self.total)) * self.design_effect))

    @property
    def low(self) -> float:
        """The lower 95 % bound of the fall."""
        if not self.total:
            return math.nan
        net = Rate(max(0, self.broken - self.fixed), self.total, self.total / self.design_effect)
        return min(self.value - Z_95 * self.deviation / self.total, net.interval[0])


def wilson(count: float, total: float) -> tuple[float, float]:
    """Return Wilson's score interval of a share, `(low, high)`."""
    if total == 0:
        return 0.0, 1.0
    share, z = count / total, Z_95
    centre = share + z * z / (2 * total)
    spread = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    scale = 1 + z * z / total
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)


def rule_of_three(total: float) -> float:
    """Return the upper 95 % bound of a share of which no case was seen in `total` inputs."""
    return min(1.0, 3 / total) if total else 1.0


def interval(count: int, total: int, draws: float | None = None) -> tuple[float, float]:
    """Return a share's 95 % interval: Wilson's, or the rule of three if none (or every one) was seen.

    Args:
        count: How many count.
        total: How many there are.
        draws: How many independent ones they are worth; as many as there are when None.
    """
    if count == 0:
        return 0.0, rule_of_three(total if draws is None else draws)
    if count == total:
        return 1 - rule_of_three(total if draws is None else draws), 1.0
    return wilson(count, total) if draws is None else wilson(count * draws / total, draws)


def sign_test(better: int, worse: int) -> float:
    """Two-sided exact sign test: how likely is a split at least this uneven if both directions were equally likely?"""
    total = better + worse
    if total == 0:
        return 1.0
    return min(1.0, 2 * float(bdtr(min(better, worse), total, 0.5)))


def mcnemar(fixed: int, broken: int) -> float:
    """McNemar's exact test of two models on the same inputs: wrong → right against right → wrong, two-sided."""
    return sign_test(fixed, broken)


def fewest_for_level(level: float = LEVEL) -> int:
    """Return the smallest number of inputs on which the sign test can fall below a level at all: 6 for 5 %."""
    total = 1
    while sign_test(total, 0) >= level:
        total += 1
    return total


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Holm's correction: p-values that stay honest when several faults are tested at once, in the given order."""
    order = sorted(range(len(p_values)), key=lambda position: p_values[position])
    adjusted = [1.0] * len(p_values)
    largest = 0.0
    for rank, position in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[position]))
        adjusted[position] = largest
    return tuple(adjusted)
