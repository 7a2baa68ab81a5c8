"""`front.npz`: every point of a front, so that another one can be chosen later without a new search.

It holds numbers alone: for every set of weights that candidates change, where they lie and the candidates' values; for
every part of the data its rows, labels and outcomes, and as packed bits which inputs are right with each point. What is
text (names of layers and searchers, the search's history, where the data came from) is JSON, kept as bytes.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from arachne.data.grouping import MOST_GROUPS
from arachne.errors import InputError
from arachne.files import atomic_write
from arachne.npz import read_npz
from arachne.reading import foreign, parse_json
from arachne.search import Candidate, Generation, SearchResult
from arachne.search.standing import Baseline, Point, Standing
from arachne.values import Address, Array

FRONT = "front.npz"
SCHEMA = "arachne.front/1"
PARTS = ("seen", "choose", "held_out")


@dataclass(frozen=True, eq=False)
class StoredFront:
    """What a front's file holds.

    Attributes:
        points: The front.
        search: The search it comes from.
        class_names: The model's classes.
        sources: Where model and data were, in the words of the command line.
    """

    points: tuple[Point, ...]
    search: SearchResult
    class_names: tuple[str, ...]
    sources: Mapping[str, Any]

    def rows(self, part: str) -> Array:
        """The row numbers of a part of the data, `(n,)`."""
        standing = getattr(self.points[0], part)
        return np.zeros(0, np.int64) if standing is None else np.asarray(standing.baseline.rows)


def write_front(path: Path, front: StoredFront) -> None:
    """Write the file, whole or not at all."""
    points, search = front.points, front.search
    groups: dict[tuple[Address, ...], list[int]] = {}
    for number, point in enumerate(points):
        groups.setdefault(point.candidate.addresses, []).append(number)
    arrays: dict[str, Array] = {}
    told = []
    for number, (addresses, members) in enumerate(groups.items()):
        runs = [(key, list(run)) for key, run in groupby(addresses, key=lambda at: (at.layer, at.parameter))]
        for at, (_, run) in enumerate(runs):
            arrays[f"group{number}.index{at}"] = np.array([address.index for address in run], np.int64)
        arrays[f"group{number}.values"] = np.stack([points[member].candidate.values for member in members])
        told.append({"parameters": [key for key, _ in runs], "members": members})
    for part in PARTS:
        arrays |= _part(part, [getattr(point, part) for point in points])
    folded = [number for number, point in enumerate(points) if point.out_of_fold is not None]
    arrays["out_of_fold.right"] = _packed([points[n].out_of_fold.right for n in folded])  # type: ignore[union-attr]
    arrays["deficits"] = np.stack([_deficits(point.candidate) for point in points])
    about = {
        "schema": SCHEMA,
        "groups": told,
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
    arrays = _arrays(path)
    with foreign(f"'{path}' as a front", InputError):
        about = parse_json(arrays["about"].tobytes())
        if about["schema"] != SCHEMA:
            raise ValueError(f"its version is {about['schema']!r}, expected {SCHEMA!r}")
        return _front(arrays, about)


def _front(arrays: Mapping[str, Array], about: Mapping[str, Any]) -> StoredFront:
    candidates = _candidates(arrays, about)
    parts = {part: _standings(arrays, part, len(candidates)) for part in PARTS}
    folded = dict(zip(about["out_of_fold"], arrays["out_of_fold.right"], strict=True))
    points = []
    for number, (candidate, told) in enumerate(zip(candidates, about["points"], strict=True)):
        seen, choose, held_out = (parts[part][number] for part in PARTS)
        if seen is None:
            raise ValueError("it has no seen inputs")
        fold = Standing(seen.baseline, _unpacked(folded[number], len(seen.right))) if number in folded else None
        size, weights, never = float(told["size"]), int(told["weights"]), int(told["never_broken"])
        larger, budget = told.get("minimised_from"), told.get("minimised_for")
        points.append(
            Point(
                *(candidate, weights, size, seen, choose, fold, never, held_out),
                minimised_from=None if larger is None else int(larger),
                minimised_for=None if budget is None else float(budget),
            )
        )
    told = about["search"]
    search = SearchResult(
        front=tuple(candidates),
        original=np.array(told["original"], np.int64),
        total_weight=float(told["total_weight"]),
        history=tuple(Generation(**at) for at in told["history"]),
        stopped=str(told["stopped"]),
        chosen=int(told["chosen"]),
    )
    if not 0 <= search.chosen < len(points):
        raise ValueError("it has no such chosen point")
    names = tuple(map(str, about["class_names"]))
    if any(standing.baseline.labels.max(initial=0) >= len(names) for standing in parts["seen"] if standing):
        raise ValueError("its labels are not those of its classes")
    return StoredFront(tuple(points), search, names, dict(about["sources"]))


def _candidates(arrays: Mapping[str, Array], about: Mapping[str, Any]) -> list[Candidate]:
    found: dict[int, Candidate] = {}
    for number, group in enumerate(about["groups"]):
        addresses = tuple(
            Address(str(layer), str(parameter), tuple(index))
            for at, (layer, parameter) in enumerate(group["parameters"])
            for index in arrays[f"group{number}.index{at}"].tolist()
        )
        values = arrays[f"group{number}.values"].astype(np.float64)
        if values.shape != (len(group["members"]), len(addresses)) or not np.isfinite(values).all():
            raise ValueError(f"the values of group {number} do not fit its weights")
        for member, own in zip(group["members"], values, strict=True):
            told = str(about["points"][member]["made_by"])
            found[int(member)] = Candidate(addresses, own, arrays["deficits"][member], told)
    return [found[number] for number in range(len(about["points"]))]


def _part(part: str, standings: Sequence[Standing | None]) -> dict[str, Array]:
    """Rows, labels and outcomes of a part, and which of its inputs are right with each point."""
    known = [standing for standing in standings if standing is not None]
    if not known:
        return {}
    baseline = known[0].baseline
    return {
        f"{part}.rows": np.asarray(baseline.rows, np.int64),
        f"{part}.labels": np.asarray(baseline.labels, np.int64),
        f"{part}.was_right": np.packbits(baseline.right),
        f"{part}.negative": np.packbits(baseline.negative),
        f"{part}.right": _packed([standing.right for standing in known]),
        **{f"{part}.column.{name}": column for name, column in _columns(baseline).items()},
    }


def _columns(baseline: Baseline) -> dict[str, Array]:
    """Metadata that tells groups apart: what a group may lose is chosen by it later."""
    found = {name: np.asarray(column).astype(str) for name, column in baseline.columns.items()}
    return {name: column for name, column in found.items() if len(np.unique(column)) <= MOST_GROUPS}


def _standings(arrays: Mapping[str, Array], part: str, points: int) -> list[Standing | None]:
    if f"{part}.rows" not in arrays:
        return [None] * points
    rows, labels, right = (arrays[f"{part}.{name}"] for name in ("rows", "labels", "right"))
    if rows.ndim != 1 or rows.shape != labels.shape or len(right) != points or (rows < 0).any() or (labels < 0).any():
        raise ValueError(f"the outcomes of its {part.replace('_', ' ')} inputs do not fit each other")
    n = len(rows)
    was_right, negative = (_unpacked(arrays[f"{part}.{name}"], n) for name in ("was_right", "negative"))
    prefix = f"{part}.column."
    columns = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
    if any(column.shape != rows.shape or column.dtype.kind != "U" for column in columns.values()):
        raise ValueError(f"the metadata of its {part.replace('_', ' ')} inputs does not fit them")
    baseline = Baseline(rows, labels, was_right, negative, columns)
    return [Standing(baseline, _unpacked(own, n)) for own in right]


def _packed(rows: Sequence[Array]) -> Array:
    return np.packbits(np.stack(rows), axis=1) if len(rows) else np.zeros((0, 0), np.uint8)


def _unpacked(bits: Array, n: int) -> Array:
    if bits.dtype != np.uint8 or bits.shape != (-(-n // 8),):
        raise ValueError("its bits do not fit its inputs")
    return np.unpackbits(bits, count=n).astype(bool)


def _deficits(candidate: Candidate) -> Array:
    if candidate.deficits is None:
        raise ValueError("a candidate of a front was not measured")
    return candidate.deficits


def _arrays(path: Path) -> dict[str, Array]:
    """All arrays of the file; how large each is gets checked before memory is taken for it."""
    if not path.exists():
        raise InputError(f"'{path.parent}' has no {path.name}: its repair left no front to choose from")
    return read_npz(path, "front", InputError)
