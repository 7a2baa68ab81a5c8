"""Text from models and data files, made safe to show.

A layer or class name is whatever its author wrote, which may include characters that steer a terminal. Everything a
command prints goes through `SafeConsole`, and errors through `printable`, so no other place has to think of it.
"""

from __future__ import annotations

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def printable(value: object, *, keep: str = "") -> str:
    """A value as text in which every character that cannot be printed is replaced, except those in `keep`."""
    text = str(value)
    return (
        text
        if text.isprintable()
        else "".join(one if one.isprintable() or one in keep else REPLACEMENT for one in text)
    )
