"""Numbers as the page of the study writes them: means over runs or over faults, with 95 % intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from examples.study.cells import table
from examples.study.questions.reading import Outcome
from examples.study.summary import Mean

FEWEST = 3
"""Of fewer runs or faults no interval is told."""

Outcomes = Mapping[str, Sequence[Outcome]]
"""Of one way: the runs of each case."""

__all__ = ["FEWEST", "Outcomes", "mean_over", "number", "points", "rate_at", "ratio", "table", "with_interval"]


def mean_over(outcomes: Outcomes, value: Callable[[Outcome], float]) -> Mean:
    """A mean in which a case counts once; over runs where there is a single case."""
    if len(outcomes) == 1:
        return Mean.of([value(one) for own in outcomes.values() for one in own])
    return Mean.of([float(np.mean([value(one) for one in own])) for own in outcomes.values()])


def rate_at(outcomes: Outcomes) -> str:
    """`0.59 (0.55 to 0.62) @ 2.9 %`: repaired and broken."""
    if not any(outcomes.values()):
        return "not run"
    damage = mean_over(outcomes, lambda one: one.damage).value
    return f"{with_interval(mean_over(outcomes, lambda one: one.repair))} @ {100 * damage:.2f} %"


def with_interval(mean: Mean, digits: int = 2, *, sign: bool = False) -> str:
    """A mean and its interval, where there is enough to resample."""
    told = number(mean.value, digits, sign=sign)
    if mean.faults < FEWEST:
        return told
    return f"{told} ({number(mean.low, digits, sign=sign)} to {number(mean.high, digits, sign=sign)})"


def number(value: float, digits: int = 2, *, sign: bool = False) -> str:
    """A number with so many digits."""
    return f"{value:+.{digits}f}" if sign else f"{value:.{digits}f}"


def points(outcomes: Outcomes, value: Callable[[Outcome], float]) -> str:
    """A change in points, with its interval."""
    return with_interval(mean_over(outcomes, value), 1, sign=True) if any(outcomes.values()) else "not run"


def ratio(above: float, below: float) -> str:
    """One number over another."""
    return f"{above / below:.2f}" if below else "-"
