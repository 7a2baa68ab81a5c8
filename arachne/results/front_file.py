"""`front.npz`: every point of a front, so that another one can be chosen later without a new search.

It holds numbers alone: for every set of weights that candidates change, where they lie and the candidates' values; for
every candidate that changes a whole matrix, its vectors; for every part of the data its rows, labels and outcomes, and
as packed bits which inputs are right with each point. What is text (names of layers and searchers, the search's
history, where the data came from) is JSON, kept as bytes.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from arachne.data.grouping import MAX_GROUPS
from arachne.errors import InputError
from arachne.io.files import atomic_write
from arachne.io.npz import read_npz
from arachne.io.reading import parse_errors_as, parse_json
from arachne.io.stored_values import check_list, check_mapping, real, shorten, text, whole
from arachne.model.values import Array
from arachne.results.front_candidates import MAX_POINTS, candidate_arrays, deficits_of, read_candidates, read_edit
from arachne.scoring.outcome import Baseline, Outcome
from arachne.search import Candidate, Generation, SearchResult
from arachne.search.measured import MeasuredCandidate
from arachne.text import size_text
from arachne.weights.selection import WeightSource

FRONT = "front.npz"
SCHEMA = "arachne.front/1"
PARTS = ("seen", "choose", "held_out")

MAX_FRONT_BYTES = 256 << 20
"""Bytes that the arrays of a front may take."""

MAX_ABOUT_BYTES = 32 << 20
"""Bytes that the text of a front may take."""

MAX_GENERATIONS, MAX_CLASSES, MAX_TERMS = 1_000_000, 1_000_000, 100_000
"""How many generations, classes and terms of the fitness a front may have."""

MAX_GROUP_CHARACTERS = 200
"""Characters of a value that names a group; columns of longer texts are not stored."""


@dataclass(frozen=True, eq=False)
class StoredFront:
    """The content of a front's file.

    Attributes:
        points: The front.
        search: The search it comes from.
        class_names: The model's classes.
        sources: Where model and data were, in the words of the command line.
    """

    points: tuple[MeasuredCandidate, ...]
    search: SearchResult
    class_names: tuple[str, ...]
    sources: Mapping[str, Any]

    def read(self, source: WeightSource) -> StoredFront:
        """Return the front with the values that its weights have in a model."""
        selections = {stored: stored.read(source) for stored in {one.selection for one in self.search.front}}
        known = {
            one: replace(one, selection=selections[one.selection], edit=read_edit(one.edit, source))
            for one in self.search.front
        }
        points = tuple(replace(point, candidate=known[point.candidate]) for point in self.points)
        front = tuple(known[one] for one in self.search.front)
        return replace(self, points=points, search=replace(self.search, front=front))

    def rows(self, part: str) -> Array:
        """The row numbers of a part of the data, `(n,)`, each once."""
        outcome = getattr(self.points[0], part)
        if outcome is None:
            return np.zeros(0, np.int64)
        rows = np.asarray(outcome.baseline.rows)
        return rows if outcome.baseline.owners is None else np.asarray(list(dict.fromkeys(rows.tolist())), np.int64)


def write_front(path: Path, front: StoredFront) -> None:
    """Write the file, whole or not at all."""
    points, search = front.points, front.search
    arrays, entries = candidate_arrays([point.candidate for point in points])
    for part in PARTS:
        arrays |= _part(part, [getattr(point, part) for point in points])
    folded = [number for number, point in enumerate(points) if point.out_of_fold is not None]
    arrays["out_of_fold.right"] = _pack([points[n].out_of_fold.right for n in folded])  # type: ignore[union-attr]
    about = {
        "schema": SCHEMA,
        **entries,
        "out_of_fold": folded,
        "points": [
            {
                "made_by": point.candidate.made_by,
                "weights": point.weights,
                "size": point.size,
                "never_broken": point.never_broken,
                "minimised_from": point.minimised_from,
                "minimised_for": point.minimised_for,
            }
            for point in points
        ],
        "search": {
            "original": search.original.tolist(),
            "total_weight": search.total_weight,
            "history": [asdict(at) for at in search.history],
            "stopped": search.stopped,
            "chosen": search.chosen,
        },
        "class_names": front.class_names,
        **({"several_decisions": True} if points[0].seen.baseline.owners is not None else {}),
        "sources": dict(front.sources),
    }
    arrays["about"] = np.frombuffer(json.dumps(about).encode(), np.uint8)
    stream = io.BytesIO()
    np.savez_compressed(stream, **arrays)  # type: ignore[arg-type]
    atomic_write(path, stream.getvalue())


def read_front(path: Path) -> StoredFront:
    """Read the file; nothing in it is believed before it is checked, and no code in it runs.

    Raises:
        InputError: Nothing is there, or no front.
    """
    if not os.path.lexists(path):
        raise InputError(f"'{path.parent}' has no {path.name}: its repair left no front to choose from")
    arrays = read_npz(path, "front", InputError, max_bytes=MAX_FRONT_BYTES, links=False)
    with parse_errors_as(f"'{path}' as a front", InputError):
        if arrays["about"].nbytes > MAX_ABOUT_BYTES:
            raise ValueError(f"what it tells of itself takes more than {size_text(MAX_ABOUT_BYTES)}")
        about = check_mapping(parse_json(arrays["about"].tobytes()), "about")
        if about["schema"] != SCHEMA:
            raise ValueError(f"its version is {shorten(about['schema'])}, expected {SCHEMA!r}")
        return _front(arrays, about)


def _front(arrays: Mapping[str, Array], about: Mapping[str, Any]) -> StoredFront:
    candidates = read_candidates(arrays, about)
    names = tuple(text(name, "class_names") for name in check_list(about["class_names"], "class_names", MAX_CLASSES))
    several = about.get("several_decisions") is True
    parts = {part: _standings(arrays, part, len(candidates), len(names), several) for part in PARTS}
    rows = [
        whole(row, "out_of_fold", 0, len(candidates) - 1)
        for row in check_list(about["out_of_fold"], "rows", MAX_POINTS)
    ]
    folded = dict(zip(rows, arrays["out_of_fold.right"], strict=True))
    points = []
    for number, (candidate, entry) in enumerate(zip(candidates, about["points"], strict=True)):
        seen, choose, held_out = (parts[part][number] for part in PARTS)
        if seen is None:
            raise ValueError("it has no seen inputs")
        fold = Outcome(seen.baseline, _unpack(folded[number], len(seen.right))) if number in folded else None
        larger, budget = entry.get("minimised_from"), entry.get("minimised_for")
        points.append(
            MeasuredCandidate(
                candidate,
                whole(entry["weights"], "weights"),
                real(entry["size"], "size", 0),
                *(seen, choose, fold),
                whole(entry["never_broken"], "never_broken"),
                held_out,
                minimised_from=None if larger is None else whole(larger, "minimised_from"),
                minimised_for=None if budget is None else real(budget, "minimised_for", 0),
            )
        )
    return StoredFront(
        tuple(points), _search(candidates, about["search"]), names, dict(check_mapping(about["sources"], "sources"))
    )


def _search(candidates: Sequence[Candidate], stored: Any) -> SearchResult:
    stored = check_mapping(stored, "search")
    original = [whole(one, "original") for one in check_list(stored["original"], "original", MAX_TERMS)]
    if any(deficits_of(candidate).shape != (len(original),) for candidate in candidates):
        raise ValueError("its deficits do not fit those of the original model")
    return SearchResult(
        front=tuple(candidates),
        original=np.array(original, np.int64),
        total_weight=real(stored["total_weight"], "total_weight", 0),
        history=tuple(map(Generation.from_json, check_list(stored["history"], "history", MAX_GENERATIONS))),
        stopped=text(stored["stopped"], "stopped"),
        chosen=whole(stored["chosen"], "chosen", 0, len(candidates) - 1),
    )


def _part(part: str, outcomes: Sequence[Outcome | None]) -> dict[str, Array]:
    """Rows, labels and outcomes of a part, and which of its inputs are right with each point."""
    known = [outcome for outcome in outcomes if outcome is not None]
    if not known:
        return {}
    baseline = known[0].baseline
    return {
        f"{part}.rows": np.asarray(baseline.rows, np.int64),
        f"{part}.labels": np.asarray(baseline.labels, np.int64),
        f"{part}.was_right": np.packbits(baseline.right),
        f"{part}.negative": np.packbits(baseline.negative),
        f"{part}.right": _pack([outcome.right for outcome in known]),
        **{f"{part}.column.{name}": column for name, column in _columns(baseline).items()},
    }


def _columns(baseline: Baseline) -> dict[str, Array]:
    """The metadata columns with few and short enough values to be groups, by which a later choice may limit losses."""
    found: dict[str, Array] = {}
    for name, column in baseline.columns.items():
        values = np.unique(np.asarray(column))
        if len(values) <= MAX_GROUPS and max(map(len, map(str, values.tolist())), default=0) <= MAX_GROUP_CHARACTERS:
            found[name] = np.asarray(column).astype(str)
    return found


def _standings(
    arrays: Mapping[str, Array], part: str, points: int, classes: int, several: bool
) -> list[Outcome | None]:
    if f"{part}.rows" not in arrays:
        return [None] * points
    rows, labels, right = (arrays[f"{part}.{name}"] for name in ("rows", "labels", "right"))
    words = part.replace("_", " ")
    whole_numbers = rows.dtype.kind in "iu" and labels.dtype.kind in "iu" and rows.ndim == 1
    if not whole_numbers or rows.shape != labels.shape or right.ndim != 2 or len(right) != points:
        raise ValueError(f"the outcomes of its {words} inputs do not fit each other")
    twice = not several and len(np.unique(rows)) != len(rows)
    if (rows < 0).any() or (labels < 0).any() or twice:
        raise ValueError(f"the rows of its {words} inputs are negative or stand twice")
    if (labels >= classes).any():
        raise ValueError("its labels are not those of its classes")
    n = len(rows)
    was_right, negative = (_unpack(arrays[f"{part}.{name}"], n) for name in ("was_right", "negative"))
    prefix = f"{part}.column."
    columns = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
    if any(column.shape != rows.shape or column.dtype.kind != "U" for column in columns.values()):
        raise ValueError(f"the metadata of its {words} inputs does not fit them")
    baseline = Baseline(rows.astype(np.int64), labels.astype(np.int64), was_right, negative, columns)
    return [Outcome(baseline, _unpack(own, n)) for own in right]


def _pack(rows: Sequence[Array]) -> Array:
    return np.packbits(np.stack(rows), axis=1) if len(rows) else np.zeros((0, 0), np.uint8)


def _unpack(bits: Array, n: int) -> Array:
    if bits.dtype != np.uint8 or bits.shape != (-(-n // 8),):
        raise ValueError("its bits do not fit its inputs")
    return np.unpackbits(bits, count=n).astype(bool)
