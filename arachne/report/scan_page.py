"""The content of a scan's page: causes with pictures, then confusions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from arachne.causes.interventions import FixedStamp
from arachne.causes.wording import region_of, region_of_values
from arachne.data.labelled import LabelledData
from arachne.data.lazy.memmap import gather
from arachne.model.values import Array
from arachne.report.json import clean
from arachne.report.pictures import difference_of_means, show_inputs

if TYPE_CHECKING:
    from arachne.causes import Cause
    from arachne.causes.experiment import Copies, Experiment
    from arachne.evidence.scan import Scan

MOST_MEMBERS = 12
MOST_NEIGHBOURS = 6
MOST_COMPARED = 2000
MOST_FAULTS = 50


def scan_page(scan: Scan, *, command: str | None = None, following: str | None = None) -> dict[str, Any]:
    """Collect everything the page shows, with nothing in it that is not JSON.

    Args:
        scan: The scan.
        command: The command line that made it.
        following: How to go on: a sentence, and below it the command.
    """
    wrong = sum(fault.count for fault in scan.faults)
    page: dict[str, Any] = clean(
        {
            "command": command,
            "following": following,
            "source": scan.data.source,
            "inputs": len(scan.true_classes),
            "noun": scan.task.NOUN,
            "wrong": wrong,
            "accuracy": scan.accuracy,
            "unexplained": wrong - sum(cause.count for cause in scan.causes),
            "no_causes": scan.task.no_causes,
            "causes": [_cause(cause, scan) for cause in scan.causes],
            "faults": [
                {"target": fault.target, "count": fault.count, "share": fault.share}
                for fault in scan.faults[:MOST_FAULTS]
            ],
            "rarer": max(0, len(scan.faults) - MOST_FAULTS),
        }
    )
    return page


def _cause(cause: Cause, scan: Scan) -> dict[str, Any]:
    shown = np.linspace(0, cause.count - 1, min(cause.count, MOST_MEMBERS)).astype(int)  # files are in order of classes
    members = cause.members[shown].tolist()
    right = scan.predictions == scan.data.labels
    alike = np.flatnonzero(right & np.isin(scan.data.labels, scan.data.labels[cause.members]))
    return {
        "target": cause.target,
        "sentence": cause.sentence,
        "explanation": cause.explain().splitlines()[1 : -1 if cause.experiment is None else -2],
        "count": cause.count,
        "members": _cards(scan, members, cause),
        "neighbours": _cards(scan, nearest(scan.data, members[:MOST_NEIGHBOURS], alike), None),
        "difference": difference_of_means(scan.data, cause.members.tolist(), alike.tolist()),
        "experiment": None if cause.experiment is None else _experiment(cause.experiment, scan),
    }


def _experiment(experiment: Experiment, scan: Scan) -> dict[str, Any]:
    """Describe an experiment, with a few inputs before and after: some that fail, and some that are cured."""
    shown = {}
    for name, copies in (("failing", experiment.failing), ("cured", experiment.cured)):
        rows = [] if copies is None else copies.rows[:MOST_NEIGHBOURS].tolist()
        shown[name] = [] if copies is None or not rows else _pairs(copies, rows, scan)
    return {"sentence": experiment.sentence, "verdict": experiment.verdict, **shown}


def _pairs(copies: Copies, rows: list[int], scan: Scan) -> list[dict[str, Any]]:
    after = show_inputs(copies.data, list(range(len(rows))))
    cards = _cards(scan, rows, None)
    return [{**card, "after": one} for card, one in zip(cards, after, strict=True)]


def _cards(scan: Scan, rows: Sequence[int], cause: Cause | None) -> list[dict[str, Any]]:
    region = None if cause is None else _region(cause)
    return [
        {
            "row": row,
            "name": None if scan.data.names is None else scan.data.names[row],
            "label": scan.data.class_name(int(scan.data.labels[row])),
            "prediction": scan.data.class_name(int(scan.predictions[row])),
            "input": shown,
            "outline": _outline(region, shown, scan.data),
        }
        for row, shown in zip(rows, show_inputs(scan.data, rows), strict=True)
    ]


def _region(cause: Cause) -> tuple[int, int, int, int] | None:
    """Return the region that an experiment has confirmed, or else that of the rule; None if there is none."""
    tried = cause.experiment
    if tried is not None and tried.verdict == "confirmed" and isinstance(tried.intervention, FixedStamp):
        stamp = tried.intervention
        return region_of_values(stamp.index.tolist(), stamp.input, cause.data)
    return region_of(cause.rule, cause.data)


def _outline(
    region: tuple[int, int, int, int] | None, shown: dict[str, Any], data: LabelledData
) -> dict[str, float] | None:
    """A rectangle around the shared region, in the units of the shown picture, which may be scaled down."""
    if region is None or shown["kind"] != "image" or isinstance(data.inputs, Mapping):
        return None
    top, left, bottom, right = region
    scale = shown["width"] / max(shown["width"], max(data.inputs.shape[1:]))
    return {
        "x": left * scale,
        "y": top * scale,
        "width": (right - left + 1) * scale,
        "height": (bottom - top + 1) * scale,
    }


def nearest(data: LabelledData, rows: Sequence[int], others: Array) -> list[int]:
    """The nearest of `others` for each row, of the same class if possible, without duplicates."""
    if isinstance(data.inputs, Mapping) or not len(others):
        return []
    step = max(1, len(others) // MOST_COMPARED)
    others = others[::step]
    there = np.asarray(gather(data.inputs, others), dtype=np.float32).reshape(len(others), -1)
    found: list[int] = []
    for row in rows:
        here = np.asarray(data.inputs[row], dtype=np.float32).ravel()
        distance = np.nan_to_num(((there - here) ** 2).sum(axis=1), nan=np.inf)
        distance = distance + np.where(data.labels[others] == data.labels[row], 0, distance.max() + 1)
        found.append(int(others[int(np.argmin(distance))]))
    return list(dict.fromkeys(found))
