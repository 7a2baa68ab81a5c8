"""Counts and shares in sentences, values as one line, and text from models and data files, made safe to show."""

from __future__ import annotations

import math
from dataclasses import MISSING, Field, fields, is_dataclass
from reprlib import Repr
from typing import Any

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


MAX_HEADLINE = 200
"""Characters of a value's headline at a prompt, at most."""

MAX_INSIDE = 60
"""Characters of a value inside another one, at most."""


class Brief:
    """A value whose `repr` is one short line: its class and its headline."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.__repr__ = cls.__repr__  # type: ignore[method-assign]  # in the class itself, or `dataclass` adds a long one

    def __repr__(self) -> str:
        text = printable(" ".join(self.headline.split()))
        return f"{type(self).__name__}({text if len(text) <= MAX_HEADLINE else f'{text[: MAX_HEADLINE - 1]}…'})"

    @property
    def headline(self) -> str:
        """The few facts that one wants; unless a class says which, the attributes that differ from their defaults."""
        declared: tuple[Field[Any], ...] = fields(self) if is_dataclass(self) else ()
        held = {one.name: getattr(self, one.name) for one in declared if one.repr and not _has_default(self, one)}
        return ", ".join(f"{name}={_SHORTENER.repr(value)}" for name, value in held.items())


class _Shortener(Repr):
    """Shortens values inside another one: arrays to their type and shape, long lines to the name of their class."""

    def repr_instance(self, value: Any, level: int) -> str:
        if isinstance(value, Brief):
            text = repr(value)
            return text if len(text) <= MAX_INSIDE else f"{type(value).__name__}(…)"
        if hasattr(value, "dtype") and getattr(value, "shape", None):
            return f"<{value.dtype} {tuple(value.shape)}>"
        return super().repr_instance(value, level)


_SHORTENER = _Shortener()


def _has_default(value: Brief, one: Field[Any]) -> bool:
    held = getattr(value, one.name)
    default = one.default_factory() if one.default_factory is not MISSING else one.default
    return type(held) is type(default) and bool(held == default)
