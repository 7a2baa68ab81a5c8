"""Numbers as the page writes them."""

from __future__ import annotations

from collections.abc import Sequence

from examples.study.summary import Mean, Summary

FEWEST_RESAMPLED = 4
"""Of fewer faults no interval is told."""


def cell(found: Summary | None) -> str:
    """Repaired @ broken."""
    if found is None:
        return "not run"
    return f"{interval(found.repair)} @ {100 * found.damage.value:.2f} %"


def short_cell(found: Summary | None) -> str:
    """Repaired @ broken, without the interval."""
    return "not run" if found is None else f"{share(found.repair.value)} @ {100 * found.damage.value:.2f} %"


def interval(mean: Mean, *, sign: bool = False) -> str:
    """The mean with its interval, where there are enough faults to resample."""
    if mean.faults < FEWEST_RESAMPLED:
        return share(mean.value, sign)
    return f"{share(mean.value, sign)} ({share(mean.low, sign)} to {share(mean.high, sign)})"


def share(value: float, sign: bool = False) -> str:
    """Two digits, with a plus where it is a difference."""
    return f"{value:+.2f}" if sign else f"{value:.2f}"


def percent(budget: float) -> str:
    """A budget as people write it."""
    return f"{100 * budget:g} %"


def verdict(yes: bool) -> str:
    """Whether something came out."""
    return "yes" if yes else "**no**"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
