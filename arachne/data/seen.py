"""Which inputs a repair has seen: told in the patch, and found again in whatever data the patch is measured on.

The same file again is known by its hash, and then row by row. In other data inputs are known by their content: the
patch keeps the smallest `KEPT` of the seen inputs' hashes. Of inputs whose hash is below the largest of these it is
known for certain whether they were seen, and they are a fair sample of all.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from arachne.data.labelled import LabelledData
from arachne.values import Array

KEPT = 512
"""How many hashes a patch keeps at most."""

BYTES = 5
"""How much of a hash is kept: two of a million other inputs are taken for seen ones by mistake."""

FEWEST = 20
"""How many inputs have to be checked before all others are called unseen too."""

HELD_OUT, SEEN, PARTLY_SEEN, UNKNOWN = "held out", "seen", "partly seen", "seen or not"
ALL = "all inputs"
BASES = (HELD_OUT, SEEN, PARTLY_SEEN, UNKNOWN, ALL)
"""What the inputs of a verdict are to the repair; `all inputs` where there was none."""


@dataclass(frozen=True, eq=False)
class SeenInputs:
    """Which of some inputs a repair has seen.

    Attributes:
        rows: Whether it has seen each of them, bool `(n,)`; None where that is not known for every one.
        checked: How many could be checked.
        found: How many of those it has seen.
    """

    rows: Array | None
    checked: int
    found: int

    @property
    def basis(self) -> str:
        """What the inputs are to the repair, all of them together: one of `BASES`."""
        if self.found:
            return SEEN if self.rows is not None and self.found == len(self.rows) else PARTLY_SEEN
        return HELD_OUT if self.rows is not None or self.checked >= FEWEST else UNKNOWN


def told_seen(rows: Array, data: LabelledData, others: Sequence[LabelledData] = ()) -> dict[str, Any]:
    """What a patch says about the inputs a repair has seen.

    Args:
        rows: Their row numbers in the data.
        data: The data.
        others: Other data of which it has seen all.
    """
    mask = np.zeros(len(data), dtype=bool)
    mask[rows] = True
    hashes = data.hashes
    marks = {hashes[row][:BYTES] for row in np.flatnonzero(mask).tolist()}
    for other in others:
        marks |= set(_marks(other))
    smallest = sorted(marks)[:KEPT]
    return {
        "rows": _text(zlib.compress(np.packbits(mask).tobytes(), 9)),
        "hashes": _text(b"".join(smallest)),
        "different": len(marks),
    }


def find_seen(provenance: Mapping[str, Any], data: LabelledData) -> SeenInputs:
    """Which of some inputs the repair behind a patch has seen; a stack of patches has seen what each of them has."""
    parts = provenance.get("stack")
    if not isinstance(parts, list):
        return _found(provenance, data)
    each = [_found(part.get("provenance", {}), data) for part in parts if isinstance(part, Mapping)]
    if not each:
        return SeenInputs(None, 0, 0)
    known = [one.rows for one in each if one.rows is not None]
    rows = np.any(known, axis=0) if len(known) == len(each) else None
    found = max(one.found for one in each) if rows is None else int(rows.sum())
    return SeenInputs(rows, min(one.checked for one in each), found)


def _found(provenance: Mapping[str, Any], data: LabelledData) -> SeenInputs:
    told = provenance.get("data")
    seen = told.get("seen") if isinstance(told, Mapping) else None
    if not isinstance(told, Mapping) or not isinstance(seen, Mapping):
        return SeenInputs(None, 0, 0)
    try:
        if told.get("sha256") == data.sha256():
            rows = _rows(seen["rows"], len(data))
            return SeenInputs(rows, len(rows), int(rows.sum()))
        return _by_content(_bytes(seen["hashes"]), int(seen["different"]), data)
    except (KeyError, TypeError, ValueError, zlib.error):  # edited by hand: then it says nothing
        return SeenInputs(None, 0, 0)


def _by_content(kept: bytes, different: int, data: LabelledData) -> SeenInputs:
    marks = {kept[start : start + BYTES] for start in range(0, len(kept), BYTES)}
    hashes = list(_marks(data))
    seen = np.array([mark in marks for mark in hashes], dtype=bool)
    if len(marks) == different:
        return SeenInputs(seen, len(seen), int(seen.sum()))
    limit = max(marks, default=b"")
    return SeenInputs(None, sum(mark <= limit for mark in hashes), int(seen.sum()))


def _marks(data: LabelledData) -> Iterable[bytes]:
    return (digest[:BYTES] for digest in data.hashes)


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
