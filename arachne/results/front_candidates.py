"""The candidates of a front in its file: positions and values of single weights, and vectors of whole matrices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from arachne.io.stored_values import check_list, check_mapping, text, whole
from arachne.model.values import Array
from arachne.plugins.table import SEARCHERS
from arachne.search import Candidate
from arachne.weights.edit import LowRankEdit
from arachne.weights.selection import Selection, WeightSource
from arachne.weights.storage import STORAGES

MAX_POINTS, MAX_WEIGHTS = 10_000, 2_000_000
"""How many points a front may have, and how many single weights all of them may change."""

MAX_AXES = 8
"""Axes of a parameter."""


def candidate_arrays(candidates: Sequence[Candidate]) -> tuple[dict[str, Array], dict[str, Any]]:
    """Return the arrays of some candidates by name, of any shape, and what a file says about them."""
    groups: dict[Selection, list[int]] = {}
    arrays: dict[str, Array] = {"deficits": np.stack([deficits_of(candidate) for candidate in candidates])}
    edits: list[dict[str, Any]] = []
    for number, candidate in enumerate(candidates):
        edit = candidate.edit
        if edit is None:
            groups.setdefault(candidate.selection, []).append(number)
            continue
        arrays |= {f"edit{len(edits)}.left": edit.left, f"edit{len(edits)}.right": edit.right}
        edits.append({"layer": edit.layer, "parameter": edit.parameter, "member": number})
    entries = []
    for number, (selection, members) in enumerate(groups.items()):
        for at, slice_ in enumerate(selection.slices):
            arrays[f"group{number}.index{at}"] = slice_.rows
        arrays[f"group{number}.values"] = np.stack([candidates[member].values for member in members])
        entries.append({"parameters": selection.parameters, "members": members})
    return arrays, {"groups": entries, "edits": edits}


def read_candidates(arrays: Mapping[str, Array], about: Mapping[str, Any]) -> list[Candidate]:
    """Read candidates from what `candidate_arrays` gave; the values that weights have now are not known yet.

    Args:
        arrays: The arrays, of any shape.
        about: The text of the file.

    Raises:
        ValueError: Something does not fit.
    """
    points = [check_mapping(point, "points") for point in check_list(about["points"], "points", MAX_POINTS)]
    if not points:
        raise ValueError("it has no points")
    deficits = arrays["deficits"]
    if deficits.shape[:1] != (len(points),) or deficits.ndim != 2 or deficits.dtype.kind not in "iu":
        raise ValueError("its deficits do not fit its points")
    found: dict[int, Candidate] = {}
    weights = 0
    for number, group in enumerate(check_list(about["groups"], "groups", MAX_POINTS)):
        members = [
            whole(one, "members", 0, len(points) - 1) for one in check_list(group["members"], "members", MAX_POINTS)
        ]
        weights += sum(len(arrays[f"group{number}.index{at}"]) for at in range(len(group["parameters"])))
        if weights > MAX_WEIGHTS:
            raise ValueError(f"it changes more than {MAX_WEIGHTS:,} weights")
        selection = _selection(arrays, number, group["parameters"])
        values = arrays[f"group{number}.values"]
        fits = values.dtype.kind in "fiu" and values.shape == (len(members), len(selection))
        if not fits or not np.isfinite(values).all():
            raise ValueError(f"the values of group {number} do not fit its weights")
        for member, own in zip(members, values.astype(np.float64), strict=True):
            found[member] = Candidate(selection, own, deficits[member].astype(np.int64), _maker(points[member]))
    for number, stored in enumerate(check_list(about.get("edits", []), "edits", MAX_POINTS)):
        stored = check_mapping(stored, "edits")
        member = whole(stored["member"], "member", 0, len(points) - 1)
        left, right = (arrays[f"edit{number}.{side}"] for side in ("left", "right"))
        key = text(stored["layer"], "layer"), text(stored["parameter"], "parameter")
        edit = LowRankEdit(*key, left, right, STORAGES["float32"])
        found[member] = Candidate.of_edit(edit, deficits[member].astype(np.int64), _maker(points[member]))
    return [found[number] for number in range(len(points))]


def _maker(point: Mapping[str, Any]) -> str:
    """The searcher that a point comes from, by the name it has today."""
    maker, *rounds = text(point["made_by"], "made_by").split(",", 1)
    return ",".join([SEARCHERS.canonical(maker), *rounds])


def read_edit(edit: LowRankEdit | None, source: WeightSource) -> LowRankEdit | None:
    """An edit with what its parameter can hold in a model.

    Raises:
        ValueError: The model has no such parameter, or one of another shape.
    """
    if edit is None:
        return None
    known = {info.name: info.parameters for info in source.layers}
    info = known.get(edit.layer, {}).get(edit.parameter)
    if info is None or (len(edit.left), len(edit.left) * len(edit.right)) != (*info.shape[:1], info.size):
        raise ValueError(f"the model has no '{edit.layer}.{edit.parameter}' of the shape that a point changes")
    return replace(edit, storage=info.storage)


def _selection(arrays: Mapping[str, Array], number: int, parameters: Any) -> Selection:
    """Read which weights a group changes; whether the model has them is seen when they are read from it."""
    names, rows = [], []
    for at, (layer, parameter) in enumerate(check_list(parameters, "parameters", MAX_WEIGHTS)):
        index = arrays[f"group{number}.index{at}"]
        if index.ndim != 2 or index.dtype.kind not in "iu" or index.shape[1] > MAX_AXES:
            raise ValueError(f"the weights of group {number} are no positions in a parameter")
        names.append((text(layer, "layer"), text(parameter, "parameter")))
        rows.append(index.astype(np.int64))
    return Selection.unread(names, rows)


def deficits_of(candidate: Candidate) -> Array:
    """Return the deficits of a measured candidate, int64 `(terms,)`."""
    if candidate.deficits is None:
        raise ValueError("a candidate of a front was not measured")
    return candidate.deficits
