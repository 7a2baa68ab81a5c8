"""Replace attributes of Keras objects for a while."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any


@contextlib.contextmanager
def swap_attributes(replacements: Mapping[tuple[Any, str], Any]) -> Iterator[None]:
    """Replace attributes for a while, and restore them even after an error.

    This writes to the objects' `__dict__`, because Keras tracks every ordinary assignment.
    """
    absent = object()
    kept = [(vars(thing), name, vars(thing).get(name, absent)) for thing, name in replacements]
    try:
        for (own, name, _), value in zip(kept, replacements.values(), strict=True):
            own[name] = value
        yield
    finally:
        for own, name, value in reversed(kept):
            if value is absent:
                own.pop(name, None)
            else:
                own[name] = value
