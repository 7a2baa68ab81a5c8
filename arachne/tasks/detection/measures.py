"""Measure a detector as its builders do: false alarms, found objects, precision, recall, mAP50."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from arachne.decisions.decisions import Array
from arachne.tasks.detection.boxes import BOX, CLASS, corners, labelled_boxes, overlaps, suppress
from arachne.tasks.detection.candidates import MATCH
from arachne.tasks.detection.layout import Layout
from arachne.tasks.figures import Cell, Figures

WHEN = ("before", "after")

SUPPRESS = 0.7
"""The largest overlap of two boxes of one class that both stay, as Ultralytics has it."""

LEAST = 0.001
"""The probability from which on boxes count for the average precision."""

MOST_BOXES = 300
"""The most boxes of one class in one picture that count."""

POINTS = np.linspace(0, 1, 101)
"""The recalls at which precisions are averaged, as COCO does."""


@dataclass(frozen=True, eq=False)
class ClassDetections:
    """The boxes that a detector gives for one class, after non-maximum suppression.

    Attributes:
        objects: How many labelled boxes there are.
        pictures: The picture of each box that was found, int64 `(k,)`.
        boxes: Left, top, right and bottom as shares of the picture, `(k, 4)`.
        scores: Their probabilities, `(k,)`.
        hits: Whether each matches an object that no better box matches, bool `(k,)`.
    """

    objects: int
    pictures: Array
    boxes: Array
    scores: Array
    hits: Array

    def count_found(self, threshold: float) -> int:
        """Count the objects that are found from a threshold on."""
        return int((self.hits & (self.scores >= threshold)).sum())

    def count_false_alarms(self, threshold: float) -> int:
        """Count the boxes from a threshold on that match no object, or one that a better box matches."""
        return int((~self.hits & (self.scores >= threshold)).sum())

    def threshold_for(self, false_alarms: int) -> float:
        """Return the lowest threshold that leaves at most so many false alarms."""
        wrong = np.sort(self.scores[~self.hits])[::-1]
        return float(np.nextafter(wrong[false_alarms], np.inf)) if len(wrong) > false_alarms else 0.0

    def average_precision(self) -> float:
        """Return the average precision at an overlap of one half; NaN without objects."""
        if not self.objects:
            return float("nan")
        hits = self.hits[np.argsort(-self.scores, kind="stable")]
        right = np.cumsum(hits)
        recall, precision = right / self.objects, right / np.arange(1, len(hits) + 1)
        envelope = np.append(np.maximum.accumulate(precision[::-1])[::-1], 0.0)
        return float(envelope[np.searchsorted(recall, POINTS, side="left")].mean())


def detect(layout: Layout, outputs: Array, labels: Array) -> tuple[ClassDetections, ...]:
    """Return the objects of each class in a detector's outputs, after non-maximum suppression.

    Args:
        layout: Where the outputs hold what.
        outputs: Raw outputs, `(n, ...)`.
        labels: Label rows, `(n, k, COLUMNS)`.
    """
    boxes, probabilities = layout.boxes(outputs), layout.probabilities(outputs)
    objects = [labelled_boxes(own) for own in labels]
    return tuple(
        _of_class(boxes, probabilities[..., kind], [own[own[:, CLASS] == kind + 1] for own in objects])
        for kind in range(probabilities.shape[2])
    )


COLUMNS = (
    "class",
    "objects",
    *(f"{what} {when}" for what in ("false alarms", "found", "precision", "recall", "AP50") for when in WHEN),
)


def tabulate_detections(
    names: Sequence[str], before: Sequence[ClassDetections], after: Sequence[ClassDetections], thresholds: Array
) -> Figures:
    """Tell false alarms, found objects, precision, recall and average precision of each class, and of all.

    Args:
        names: The classes of objects.
        before: What the original model finds of each.
        after: What the patched model finds of each.
        thresholds: The probability from which boxes count, for each class.
    """
    rows: list[tuple[Cell, ...]] = []
    totals, precisions = np.zeros((2, 2), np.int64), []
    for name, threshold, *pair in zip(names, thresholds.tolist(), before, after, strict=True):
        counts = np.array([[own.count_false_alarms(threshold), own.count_found(threshold)] for own in pair])
        averages = [own.average_precision() for own in pair]
        totals += counts
        precisions.append(averages)
        rows.append(_row(name, pair[0].objects, counts, averages))
    known = [pair for pair in precisions if not np.isnan(pair).any()]
    means = np.mean(known, axis=0).tolist() if known else [np.nan, np.nan]
    rows.append(_row("all (mAP50)", sum(own.objects for own in before), totals, means))
    return Figures(f"boxes after non-maximum suppression, matched at IoU {MATCH:g}", COLUMNS, tuple(rows))


def _row(name: str, objects: int, counts: Array, averages: Sequence[float]) -> tuple[Cell, ...]:
    """Return a row of the table from counts of false alarms and found objects, before and after, `(2, 2)`."""
    alarms, found = counts.T.tolist()
    precision = [hits / (hits + wrong) if hits + wrong else None for hits, wrong in zip(found, alarms, strict=True)]
    recall = [hits / objects if objects else None for hits in found]
    average = [None if np.isnan(value) else float(value) for value in averages]
    return (name, objects, *alarms, *found, *precision, *recall, *average)


def _of_class(boxes: Array, scores: Array, objects: list[Array]) -> ClassDetections:
    """Return the detections of one class: boxes `(n, anchors, 4)`, scores `(n, anchors)`, objects of each picture."""
    pictures, kept, values, hits = [], [], [], []
    for at, own in enumerate(objects):
        anchors = np.flatnonzero(scores[at] >= LEAST)
        anchors = anchors[np.argsort(-scores[at, anchors], kind="stable")[: 4 * MOST_BOXES]]
        anchors = anchors[suppress(boxes[at, anchors], scores[at, anchors], SUPPRESS)[:MOST_BOXES]]
        pictures.append(np.full(len(anchors), at))
        kept.append(boxes[at, anchors])
        values.append(scores[at, anchors])
        hits.append(_hits(boxes[at, anchors], corners(own[:, BOX])))
    return ClassDetections(
        sum(map(len, objects)),
        np.concatenate(pictures),
        np.concatenate(kept),
        np.concatenate(values),
        np.concatenate(hits),
    )


def _hits(boxes: Array, objects: Array) -> Array:
    """Tell which boxes, best first, match an object that no better one matches, bool `(k,)`."""
    hits = np.zeros(len(boxes), dtype=bool)
    if not len(objects):
        return hits
    shared = overlaps(boxes, objects)
    for at in range(len(boxes)):
        best = int(shared[at].argmax())
        if shared[at, best] >= MATCH:
            hits[at] = True
            shared[:, best] = 0
    return hits
