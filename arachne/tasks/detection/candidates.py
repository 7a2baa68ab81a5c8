"""Candidates: which anchors of the original model's outputs are decisions, and what each should be read as."""

from __future__ import annotations

import numpy as np

from arachne.decisions.decisions import Array
from arachne.tasks.detection.boxes import ANCHOR, BOX, CLASS, COLUMNS, corners, labelled_boxes, overlaps, pad_rows
from arachne.tasks.detection.layout import Layout

MATCH = 0.5
"""The overlap with a labelled box from which on an anchor stands for that object."""

APART = 0.3
"""The overlap below which an anchor stands for no object; between the two it is a badly placed box, and no decision."""

FLOOR = 0.2
"""The share of the threshold from which on an anchor without an object is watched, lest it become a false alarm."""

MOST_ANCHORS = 300
"""The most decisions of one picture; those with the highest scores are taken."""


def add_candidates(layout: Layout, outputs: Array, labels: Array, thresholds: Array) -> Array:
    """Return labels `(n, more, COLUMNS)` with a row for each anchor that is a decision, in place of earlier ones.

    An object's decision is its best anchor: the one with the highest score for its class among those whose box matches.
    Any other anchor is a decision where it matches an object and is above the threshold for a class, which should be
    that object's, and where it matches none and is above the floor, which should be background.

    Args:
        layout: Where the outputs hold what.
        outputs: Of the original model, `(n, ...)`.
        labels: Labelled boxes, `(n, k, COLUMNS)`, in the unit of the outputs' boxes.
        thresholds: The probability from which on an anchor is an alarm, one for each class of objects or one for all.
    """
    boxes, probabilities = layout.boxes(outputs), layout.probabilities(outputs)
    rows = []
    for at, own in enumerate(labels):
        objects = labelled_boxes(own)
        wanted = _choose_labels(boxes[at], probabilities[at], objects, thresholds)
        anchors = np.flatnonzero(wanted >= 0)
        best = (probabilities[at, anchors] / thresholds).max(axis=1, initial=0)
        anchors = np.sort(anchors[np.argsort(-best, kind="stable")[:MOST_ANCHORS]])
        decisions = np.zeros((len(anchors), COLUMNS))
        decisions[:, CLASS], decisions[:, ANCHOR] = wanted[anchors], anchors + 1
        rows.append(np.concatenate([objects, decisions]))
    return pad_rows(rows)


def _choose_labels(boxes: Array, probabilities: Array, objects: Array, thresholds: Array) -> Array:
    """Return the class each anchor of one picture should be read as, `(anchors,)`; -1 where it is no decision."""
    highest = (probabilities / thresholds).max(axis=1, initial=0)
    wanted = np.where(highest >= FLOOR, 0, -1)
    if not len(objects):
        return wanted
    shared = overlaps(boxes, corners(objects[:, BOX]))
    nearest, near = shared.argmax(axis=1), shared.max(axis=1)
    wanted[near >= APART] = -1
    firing = (near >= MATCH) & (highest >= 1)
    wanted[firing] = objects[nearest[firing], CLASS]
    for number in range(len(objects)):
        matching = np.flatnonzero((near >= MATCH) & (nearest == number))
        if len(matching):
            kind = int(objects[number, CLASS])
            wanted[matching[probabilities[matching, kind - 1].argmax()]] = kind
    return wanted
