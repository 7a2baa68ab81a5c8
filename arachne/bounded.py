"""JSON of strangers: read only where it cannot become far larger than its text."""

from __future__ import annotations

import json
from typing import Any

MOST_VALUES = 2_000_000
"""How many values a text may hold; each takes up to a hundred bytes once it is read."""


def bounded_json(text: bytes) -> Any:
    """What a JSON text holds, each key once.

    Raises:
        ValueError: It is no JSON, is nested too deeply, holds too many values, or names a key twice.
    """
    if sum(map(text.count, (b",", b"[", b"{"))) > MOST_VALUES:
        raise ValueError(f"more than {MOST_VALUES:,} values")
    try:
        return json.loads(text, object_pairs_hook=_once)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice")
    return found
