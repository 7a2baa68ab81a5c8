"""Counts and shares in sentences."""

from __future__ import annotations

import math


def pluralise(number: int, one: str, many: str | None = None) -> str:
    """`1 weight`, `2,000 weights`; `many` is for plurals that do not end in a plain s.

    Args:
        number: How many.
        one: The noun for one of them.
        many: The noun for any other number; `one` and an s when None.
    """
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def percent(share: float) -> str:
    """Format a share: `74.1 %`, `0.35 %`; `-` for NaN."""
    if math.isnan(share):
        return "-"
    value = 100 * share
    return f"{value:.0f} %" if value in (0, 100) else f"{value:.1f} %" if abs(value) >= 10 else f"{value:.2f} %"


def are(number: int) -> str:
    """The verb that goes with a number: `is` for 1, else `are`."""
    return "is" if number == 1 else "are"


def size_text(size: float) -> str:
    """A number of bytes for people: `1.5 GiB`."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}".replace(".0 ", " ")
    return f"{size:.0f} bytes"


def percent_change(before: float, after: float) -> str:
    """Format a share before and after: `87.5 % → 96.4 %`; `99.01 % → 98.95 %` where one digit would hide the change."""
    if before != after and percent(before) == percent(after):
        return f"{100 * before:.2f} % → {100 * after:.2f} %"
    return f"{percent(before)} → {percent(after)}"


def p_value(p: float) -> str:
    """Format a p-value: `p = 0.031`, `p < 0.001`."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"
