"""Attributes of Keras objects that are something else for the length of a block."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any


@contextlib.contextmanager
def swapped(stand_ins: Mapping[tuple[Any, str], Any]) -> Iterator[None]:
    """Let other values stand in for attributes; they are back as they were when the block ends, however it ends.

    The objects' own dictionaries are written to, past Keras, which would take note of every assignment.
    """
    absent = object()
    kept = [(vars(thing), name, vars(thing).get(name, absent)) for thing, name in stand_ins]
    try:
        for (own, name, _), value in zip(kept, stand_ins.values(), strict=True):
            own[name] = value
        yield
    finally:
        for own, name, value in reversed(kept):
            if value is absent:
                own.pop(name, None)
            else:
                own[name] = value
