"""Text from models and data files, made safe to show.

A layer or class name is whatever its author wrote, which may include characters that steer a terminal.
"""

from __future__ import annotations

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def printable(value: object, *, keep: str = "") -> str:
    """A value as text in which every character that cannot be printed is replaced, except those in `keep`."""
    return "".join(one if one.isprintable() or one in keep else REPLACEMENT for one in str(value))
