"""Record in a patch which inputs its repair has seen, and recognise them in data the patch is measured on.

A file with the same SHA-256 is compared row by row. In other data, inputs are recognised by content: the patch stores
the `MAX_HASHES` smallest hashes of the seen inputs. For every input whose hash is not above the largest stored one it
is certain whether it was seen, and these inputs are an unbiased sample of all.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from arachne.data.labelled import LabelledData
from arachne.model.values import Array

MAX_HASHES = 512
"""The most hashes a patch stores."""

HASH_BYTES = 5
"""The bytes stored of each hash: a chance match affects about one in two billion unseen inputs."""

MIN_CHECKED = 20
"""The fewest inputs to check before all others are called unseen too."""

HELD_OUT, SEEN, PARTLY_SEEN, UNKNOWN = "held out", "seen", "partly seen", "seen or not"
ALL = "all inputs"
BASES = (HELD_OUT, SEEN, PARTLY_SEEN, UNKNOWN, ALL)
"""Whether a repair has seen the inputs of a verdict; `all inputs` if there was no repair."""


@dataclass(frozen=True, eq=False)
class SeenInputs:
    """Which of some inputs a repair has seen.

    Attributes:
        rows: Whether it has seen each of them, bool `(n,)`; None if that is not known for every one.
        checked_count: How many could be checked.
        seen_count: How many of those it has seen.
    """

    rows: Array | None
    checked_count: int
    seen_count: int

    @property
    def basis(self) -> str:
        """Whether the repair has seen these inputs, as a whole: one of `BASES`."""
        if self.seen_count:
            return SEEN if self.rows is not None and self.seen_count == len(self.rows) else PARTLY_SEEN
        return HELD_OUT if self.rows is not None or self.checked_count >= MIN_CHECKED else UNKNOWN


def seen_record(rows: Array, data: LabelledData, others: Sequence[LabelledData] = ()) -> dict[str, Any]:
    """Make the record of the inputs a repair has seen, for its patch.

    Args:
        rows: Their row numbers in the data.
        data: The data.
        others: Other data that it has seen completely.
    """
    mask = np.zeros(len(data), dtype=bool)
    mask[rows] = True
    hashes = data.hashes
    marks = {hashes[row][:HASH_BYTES] for row in np.flatnonzero(mask).tolist()}
    for other in others:
        marks |= set(_short_hashes(other))
    smallest = sorted(marks)[:MAX_HASHES]
    return {
        "rows": _text(zlib.compress(np.packbits(mask).tobytes(), 9)),
        "hashes": _text(b"".join(smallest)),
        "different": len(marks),
    }


def find_seen(provenance: Mapping[str, Any], data: LabelledData) -> SeenInputs:
    """Find which inputs the repair behind a patch has seen; a stack has seen the inputs of all of its patches."""
    parts = provenance.get("stack")
    if not isinstance(parts, list):
        return _find_in_one(provenance, data)
    each = [_find_in_one(part.get("provenance", {}), data) for part in parts if isinstance(part, Mapping)]
    if not each:
        return SeenInputs(None, 0, 0)
    known = [one.rows for one in each if one.rows is not None]
    rows = np.any(known, axis=0) if len(known) == len(each) else None
    found = max(one.seen_count for one in each) if rows is None else int(rows.sum())
    return SeenInputs(rows, min(one.checked_count for one in each), found)


def _find_in_one(provenance: Mapping[str, Any], data: LabelledData) -> SeenInputs:
    record = provenance.get("data")
    seen = record.get("seen") if isinstance(record, Mapping) else None
    if not isinstance(record, Mapping) or not isinstance(seen, Mapping):
        return SeenInputs(None, 0, 0)
    try:
        if record.get("sha256") == data.sha256():
            rows = _rows(seen["rows"], len(data))
            return SeenInputs(rows, len(rows), int(rows.sum()))
        return _by_content(_bytes(seen["hashes"]), int(seen["different"]), data)
    except (KeyError, TypeError, ValueError, zlib.error):  # edited by hand: nothing is known
        return SeenInputs(None, 0, 0)


def _by_content(stored: bytes, different: int, data: LabelledData) -> SeenInputs:
    marks = {stored[start : start + HASH_BYTES] for start in range(0, len(stored), HASH_BYTES)}
    hashes = list(_short_hashes(data))
    seen = np.array([mark in marks for mark in hashes], dtype=bool)
    if len(marks) == different:
        return SeenInputs(seen, len(seen), int(seen.sum()))
    limit = max(marks, default=b"")
    return SeenInputs(None, sum(mark <= limit for mark in hashes), int(seen.sum()))


def _short_hashes(data: LabelledData) -> Iterable[bytes]:
    return (digest[:HASH_BYTES] for digest in data.hashes)


def _rows(text: str, n: int) -> Array:
    bits = np.frombuffer(zlib.decompressobj().decompress(_bytes(text), (n + 7) // 8), np.uint8)
    rows = np.unpackbits(bits, count=n).astype(bool)
    if len(bits) != (n + 7) // 8:
        raise ValueError("another number of rows")
    return np.asarray(rows)


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)
