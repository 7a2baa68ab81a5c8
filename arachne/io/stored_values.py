"""Values out of a stored JSON object, each of one type and within bounds; anything else is a `ValueError`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

MAX_WHOLE = 2**53
"""The largest whole number that is accepted as a count."""

MAX_TEXT = 10_000
"""Characters of a stored name or sentence."""

MAX_SHOWN = 40
"""Characters of a wrong value that a message repeats."""


def whole(value: Any, name: str, low: int = 0, high: int = MAX_WHOLE) -> int:
    """A whole number from `low` to `high`."""
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"'{name}' is {shorten(value)}, expected a whole number from {low:,} to {high:,}")
    return value


def real(value: Any, name: str, low: float = -math.inf) -> float:
    """A finite number, at least `low`."""
    if type(value) not in (int, float) or not math.isfinite(value) or value < low:
        least = "" if low == -math.inf else f" of at least {low:g}"
        raise ValueError(f"'{name}' is {shorten(value)}, expected a finite number{least}")
    return float(value)


def text(value: Any, name: str) -> str:
    """A text that is not too long."""
    if not isinstance(value, str) or len(value) > MAX_TEXT:
        raise ValueError(f"'{name}' is {shorten(value)}, expected a text of at most {MAX_TEXT:,} characters")
    return value


def check_list(value: Any, name: str, most: int) -> list[Any]:
    """A list of at most so many values."""
    if not isinstance(value, list) or len(value) > most:
        raise ValueError(f"'{name}' is {shorten(value)}, expected a list of at most {most:,} values")
    return value


def check_mapping(value: Any, name: str) -> Mapping[str, Any]:
    """An object."""
    if not isinstance(value, Mapping):
        raise ValueError(f"'{name}' is {shorten(value)}, expected an object")
    return value


def shorten(value: Any) -> str:
    """A value as a message repeats it, short."""
    if isinstance(value, (list, dict)):
        return f"{'a list' if isinstance(value, list) else 'an object'} of {len(value):,}"
    words = str(value)[: MAX_SHOWN + 1] if not isinstance(value, str) else f"'{value[: MAX_SHOWN + 1]}'"
    return words if len(words) <= MAX_SHOWN else words[: MAX_SHOWN - 1] + "…"
