"""Counts and shares in sentences, and text from models and data files, made safe to show."""

from __future__ import annotations

import math

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def pluralise(number: int, one: str, many: str | None = None) -> str:
    """`1 weight`, `2,000 weights`; `many` is for plurals that do not end in a plain s.

    Args:
        number: How many.
        one: The noun for one of them.
        many: The noun for any other number; `one` and an s when None.
    """
    return f"{number:,} {one if number == 1 else many or one + 's'}"


MAX_DIGITS = 18
"""Digits of a number that a text may be; Python refuses to read more than some thousands."""


def is_whole_number(text: str) -> bool:
    """Whether a text is a whole number of so few digits that it can be read, whoever wrote it."""
    return text.isdecimal() and len(text) <= MAX_DIGITS


def percent(share: float) -> str:
    """Format a share: `74.1 %`, `0.35 %`; `-` for NaN."""
    if math.isnan(share):
        return "-"
    value = 100 * share
    return f"{value:.0f} %" if value in (0, 100) else f"{value:.1f} %" if abs(value) >= 10 else f"{value:.2f} %"


def number_text(value: float) -> str:
    """Format a value of an input: `0.9`, `999999`, `15270.25`; four digits below 1,000, an exponent from 10^15 on."""
    if not 1000 <= abs(value) < 1e15:
        return f"{value:.4g}"
    return f"{value:.0f}" if value == round(value) or abs(value) >= 1e6 else f"{value:.7g}"


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


def printable(value: object, *, keep: str = "") -> str:
    """A value as text in which every character that cannot be printed is replaced, except those in `keep`.

    A layer or class name is whatever its author wrote, which may include characters that steer a terminal. Everything
    a command prints goes through `SafeConsole`, and errors through this, so no other place has to think of it.
    """
    text = str(value)
    return (
        text
        if text.isprintable()
        else "".join(one if one.isprintable() or one in keep else REPLACEMENT for one in text)
    )
