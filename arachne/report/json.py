"""JSON as we write it: only finite numbers, and files that people can read."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

LINE = 120
"""Values that fit into this many characters are written on one line."""


def clean(value: Any) -> Any:
    """Convert a value to JSON's types; numbers that are not finite become null."""
    if isinstance(value, Mapping):
        return {str(key): clean(entry) for key, entry in value.items()}
    if isinstance(value, np.ndarray):
        return clean(value.tolist())
    if isinstance(value, (list, tuple, set, frozenset)):
        return [clean(entry) for entry in value]
    if isinstance(value, np.generic):
        return clean(value.item())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, (bool, int, str)):
        return value
    return str(value)


def dumps(value: Any) -> str:
    """JSON for people: indented, but what fits on a line stays on one. Ends without a newline."""
    return escape_unprintable(_dumps(clean(value), ""))


def escape_unprintable(text: str) -> str:
    """A JSON text in which every character that cannot be printed, or not be written, stands as its number.

    JSON itself escapes only those below 32; others steer terminals too, or turn the direction of what follows.
    """
    if text.replace("\n", "").isprintable():
        return text
    return "".join(one if one.isprintable() or one == "\n" else _number(one) for one in text)


def _number(character: str) -> str:
    return "".join(
        f"\\u{unit:04x}" for (unit,) in struct.iter_unpack(">H", character.encode("utf-16-be", "surrogatepass"))
    )


def _dumps(value: Any, indent: str) -> str:
    line = json.dumps(value, ensure_ascii=False, allow_nan=False)
    if not isinstance(value, (dict, list)) or not value or (indent and len(indent) + len(line) < LINE):
        return line
    deeper = indent + "  "
    if isinstance(value, dict):
        entries = [
            f"{deeper}{json.dumps(key, ensure_ascii=False)}: {_dumps(entry, deeper)}" for key, entry in value.items()
        ]
        return "{\n" + ",\n".join(entries) + f"\n{indent}}}"
    return "[\n" + ",\n".join(deeper + _dumps(entry, deeper) for entry in value) + f"\n{indent}]"
