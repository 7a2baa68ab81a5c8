"""The content of the page as one JSON object, `report.json`, from which the page is made again without a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import numpy as np

from arachne.evidence import ChangedInputs, Evidence, LabelNoise, PartEvidence
from arachne.model.values import Address, Array, LayerInfo
from arachne.report.front_page import front_object
from arachne.report.json import clean
from arachne.report.layer_maps import layer_maps
from arachne.report.localisation_object import localisation_object
from arachne.report.patch_rows import MAX_LISTED_WEIGHTS, all_rows, change_of
from arachne.report.pictures import show_inputs

if TYPE_CHECKING:
    from arachne.choose.budget import Choice
    from arachne.data.part import Part
    from arachne.localise.base import Localisation
    from arachne.patch import Patch, WeightChange
    from arachne.search.measured import MeasuredCandidate
    from arachne.search.state import SearchResult

PAGE_SCHEMA = "arachne.report/1"
MOST_SHOWN = 50
MOST_DOUBTFUL = 12
MOST_WEIGHTS = 200
MAX_TOUCHED_ROWS = 24
MOST_CLASSES = 30


def page_object(
    result: Mapping[str, Any],
    evidence: Evidence,
    held_out: Part,
    *,
    patch: Patch | None = None,
    layers: Sequence[LayerInfo] = (),
    localisation: Localisation | None = None,
    search: SearchResult | None = None,
    seen: Part | None = None,
    doubtful: LabelNoise | None = None,
    front: Sequence[MeasuredCandidate] = (),
    choice: Choice | None = None,
    saliency: Sequence[Mapping[str, Any]] = (),
    command: str | None = None,
    model: str | None = None,
    connections: Mapping[Address, str] | None = None,
    directions: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Everything the page shows, with nothing in it that is not JSON.

    Args:
        result: What `result.json` holds.
        evidence: The same numbers, with the inputs behind them.
        held_out: The inputs the verdict comes from.
        patch: The changed weights.
        layers: The model's layers, in order of execution.
        localisation: Both scores of all weights.
        search: How the search went.
        seen: The inputs the repair worked on.
        doubtful: Those of them whose labels look wrong.
        front: All patches the search found, with what they do.
        choice: Which of them was taken, and within what budget.
        saliency: Inputs with maps of what the model looks at, before and after.
        command: What to type to get the same again.
        model: The file the model came from.
        connections: The pixel, column or word that changed weights are connected to, as far as that is known.
        directions: What the directions of changed matrices read and move.
    """
    part = evidence.held_out
    page: dict[str, Any] = clean(
        {
            "schema": PAGE_SCHEMA,
            "command": command,
            "model": None if model is None else PurePath(model).name,
            "date": datetime.now(UTC).date().isoformat(),
            "result": {key: _without_rows(value) for key, value in result.items()},
            "figures": None if evidence.figures is None else evidence.figures.texts(),
            "confusion": _confusion(part),
            "confidence": {"before": _confidence(part, "before"), "after": _confidence(part, "after")},
            "gallery": {"fixed": _gallery(part.fixed, held_out), "broken": _gallery(part.damaged, held_out)},
            "doubtful": [] if seen is None or doubtful is None else _doubtful(doubtful, seen),
            "saliency": list(saliency),
            "weights": _weights(patch, localisation, connections or {}),
            "directions": list(directions),
            "layers": layer_maps(layers, patch),
            "localisation": None if localisation is None else localisation_object(localisation),
            "search": None if search is None else _search(search),
        }
    )
    if len(front) > 1 and choice is not None:
        galleries = (card["row"] for gallery in page["gallery"].values() for card in gallery["cards"])
        page["front"] = clean(front_object(front, choice, held_out, shown_already=galleries))
    return page


def _without_rows(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    return without_hashes({key: entry for key, entry in value.items() if key not in ("rows_fixed", "rows_broken")})


def without_hashes(provenance: Mapping[str, Any]) -> dict[str, Any]:
    """Leave the hashes of all inputs out of what says where data came from: nobody reads them on a page."""
    found = dict(provenance)
    for name, source in provenance.items():
        if isinstance(source, Mapping) and isinstance(source.get("seen"), Mapping):
            seen = {key: value for key, value in source["seen"].items() if key not in ("rows", "hashes")}
            found[name] = {**source, "seen": seen}
    return found


def _confusion(part: PartEvidence) -> dict[str, Any]:
    """The confusion matrices; of many classes, those with the most changes and errors."""
    if not part.classes:
        return {"names": [], "left_out": 0, "before": [], "after": []}
    counted = (part.pairs_before, part.pairs_after)
    n, sizes = len(part.classes), [len(pairs.counts) for pairs in counted]
    codes, where = np.unique(
        np.concatenate([pairs.labels * n + pairs.predictions for pairs in counted]), return_inverse=True
    )
    before, after = (np.zeros(len(codes), np.int64) for _ in counted)
    before[where[: sizes[0]]], after[where[sizes[0] :]] = (pairs.counts for pairs in counted)
    labels, predictions = codes // n, codes % n
    changes, errors = np.abs(after - before), np.where(labels != predictions, before + after, 0)

    def of_class(counts: Array) -> Array:
        found = np.zeros(n, np.int64)
        np.add.at(found, labels, counts)
        np.add.at(found, predictions, counts)
        return found

    interest = of_class(changes) * (errors.sum() + 1) + of_class(errors)
    chosen = np.sort(np.argsort(-interest, kind="stable")[:MOST_CLASSES])
    return {
        "names": [part.classes[label].name for label in chosen],
        "left_out": n - len(chosen),
        "before": _table(chosen, labels, predictions, before),
        "after": _table(chosen, labels, predictions, after),
    }


def _table(chosen: Array, labels: Array, predictions: Array, counts: Array) -> Array:
    """The counts of pairs of the chosen classes, `(chosen, chosen)`."""
    shown = np.isin(labels, chosen) & np.isin(predictions, chosen)
    table = np.zeros((len(chosen), len(chosen)), np.int64)
    rows, columns = (np.searchsorted(chosen, classes[shown]) for classes in (labels, predictions))
    table[rows, columns] = counts[shown]
    return table


def _confidence(part: PartEvidence, when: str) -> dict[str, Any]:
    measured = part.confidence_before if when == "before" else part.confidence_after
    return {"counts": measured.counts, "confidence": measured.confidence, "accuracy": measured.accuracy}


def _gallery(changed: ChangedInputs, held_out: Part) -> dict[str, Any]:
    positions = changed.positions[:MOST_SHOWN].tolist()
    data, names = held_out.data, held_out.class_names
    cards = [
        {
            "row": int(changed.rows[number]),
            "name": None if data.names is None else data.names[position],
            "label": names[int(changed.labels[number])],
            "before": names[int(changed.before[number])],
            "after": names[int(changed.after[number])],
            "confidence_before": round(float(changed.confidence_before[number]), 4),
            "confidence_after": round(float(changed.confidence_after[number]), 4),
            "on_target": bool(changed.on_target[number]),
            "input": shown,
        }
        for number, (position, shown) in enumerate(
            zip(positions, show_inputs(data, positions, changed.frames), strict=True)
        )
    ]
    return {"total": len(changed), "cards": cards}


def _doubtful(doubtful: LabelNoise, seen: Part) -> list[dict[str, Any]]:
    positions = doubtful.positions[:MOST_DOUBTFUL].tolist()
    data = seen.data
    return [
        {
            "row": int(doubtful.rows[number]),
            "name": None if data.names is None else data.names[position],
            "label": data.class_name(int(doubtful.labels[number])),
            "prediction": data.class_name(int(doubtful.predictions[number])),
            "confidence": round(float(doubtful.confidence[number]), 4),
            "agreeing": int(doubtful.agreeing[number]),
            "input": shown,
        }
        for number, (position, shown) in enumerate(zip(positions, show_inputs(data, positions), strict=True))
    ]


def _weights(
    patch: Patch | None, localisation: Localisation | None, connections: Mapping[Address, str]
) -> dict[str, Any]:
    """The largest changes; of a long patch also how much changes in which rows."""
    changes = () if patch is None else patch.changes
    weights = [entry for change in changes for entry in change.entries]
    total = len(weights)
    if total > MAX_LISTED_WEIGHTS:
        weights.sort(key=lambda entry: -abs(change_of(entry)))
    spread: dict[tuple[str, str], float] = {}
    if localisation is not None:
        spread = {slice_.key: slice_.deviation for slice_ in localisation.suspects.slices}
    shown: dict[str, Any] = {
        "total": total,
        "entries": [
            {
                "address": str(entry.address),
                "layer": entry.address.layer,
                "old": entry.old,
                "new": entry.new,
                "deviations": _in_deviations(entry, spread),
                **({"connection": connections[entry.address]} if entry.address in connections else {}),
            }
            for entry in weights[:MOST_WEIGHTS]
        ],
    }
    if total > MAX_LISTED_WEIGHTS:
        rows = all_rows(changes)
        shown["touched_rows"] = len(rows)
        shown["rows"] = [
            {"tensor": row.tensor, "row": row.name, "weights": row.weights, "size": row.size, "largest": row.largest}
            for row in rows[:MAX_TOUCHED_ROWS]
        ]
    return shown


def _in_deviations(entry: WeightChange, spread: Mapping[tuple[str, str], float]) -> float | None:
    """A change in standard deviations of the weights of its parameter, where those are known."""
    deviation = spread.get((entry.address.layer, entry.address.parameter))
    return change_of(entry) / deviation if deviation else None


def _search(search: SearchResult) -> dict[str, Any]:
    return {
        "stopped": search.stopped,
        "original_fitness": search.original_fitness,
        "fitness": search.fitness,
        "history": [
            {"number": at.number, "fitness": at.fitness, "repaired": at.repaired, "broken": at.broken}
            for at in search.history
        ],
    }
