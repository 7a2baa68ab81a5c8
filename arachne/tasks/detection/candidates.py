"""Candidates: which anchors of the original model's outputs are decisions, and what each should be read as."""

from __future__ import annotations

import numpy as np

from arachne.decisions.decisions import Array, decide
from arachne.tasks.detection.boxes import (
    ANCHOR,
    ANY_CLASS,
    BOX,
    CLASS,
    COLUMNS,
    REST,
    corners,
    labelled_boxes,
    overlaps,
    pad_rows,
)
from arachne.tasks.detection.layout import Layout

MATCH = 0.5
"""The overlap with a labelled box from which on an anchor stands for that object."""

APART = 0.3
"""The overlap below which an anchor stands for no object; between the two it is a badly placed box, and no decision."""

FLOOR = 0.2
"""The share of the threshold from which on an anchor without an object is watched, lest it become a false alarm."""

MOST_ANCHORS = 300
"""The most anchors of one picture that are decisions by themselves; those with the highest scores are taken."""


def add_candidates(layout: Layout, outputs: Array, labels: Array, thresholds: Array) -> Array:
    """Return labels `(n, more, COLUMNS)` with the decisions of each picture that has none yet.

    An object's decision is its best anchor: the one with the highest score for its class among those whose box matches.
    Any other anchor is a decision where it matches an object and is above the threshold for a class, which should be
    that object's, and where it matches none and is above the floor, which should be background. All others of a picture
    are one decision together, right while none of them is an alarm: whatever a patch raises is counted. Anchors on and
    near an object may be read as that object, and those that fire there already as anything.

    Args:
        layout: Where the outputs hold what.
        outputs: Of the original model, `(n, ...)`.
        labels: Labelled boxes, `(n, k, COLUMNS)`, in the unit of the outputs' boxes.
        thresholds: The probability from which on an anchor is an alarm, one for each class of objects or one for all.
    """
    boxes, probabilities = layout.boxes(outputs), layout.probabilities(outputs)
    rows = []
    for at, own in enumerate(labels):
        if own[:, ANCHOR].any():
            rows.append(own[own.any(axis=1)])
            continue
        objects = labelled_boxes(own)
        wanted, spared = _choose_labels(boxes[at], probabilities[at], objects, thresholds)
        rows.append(np.concatenate([objects, _decision_rows(wanted, spared, probabilities[at], thresholds)]))
    return pad_rows(rows)


def keep_decisions(layout: Layout, outputs: Array, thresholds: Array) -> Array:
    """Return labels `(n, k, COLUMNS)` by which every anchor of pictures without labels should be read as it is now."""
    rows = []
    for probabilities in layout.probabilities(outputs):
        shares = probabilities / thresholds
        highest = shares.max(axis=1, initial=0)
        decided = np.where(highest > 1, decide(shares) + 1, 0)
        wanted = np.where(highest >= FLOOR, decided, -1)
        rows.append(_decision_rows(wanted, np.zeros(len(wanted), np.int64), probabilities, thresholds))
    return pad_rows(rows)


def _decision_rows(wanted: Array, spared: Array, probabilities: Array, thresholds: Array) -> Array:
    """Return the label rows of one picture's decisions, from the class each anchor should have and may have."""
    anchors = np.flatnonzero(wanted >= 0)
    best = (probabilities[anchors] / thresholds).max(axis=1, initial=0)
    anchors = np.sort(anchors[np.argsort(-best, kind="stable")[:MOST_ANCHORS]])
    others = np.flatnonzero(spared)
    found = np.zeros((len(anchors) + len(others) + 1, COLUMNS))
    found[: len(anchors), CLASS], found[: len(anchors), ANCHOR] = wanted[anchors], anchors + 1
    found[len(anchors) : -1, CLASS], found[len(anchors) : -1, ANCHOR] = spared[others], others + 1
    found[-1, ANCHOR] = REST
    return found if len(anchors) + len(others) < len(wanted) else found[:-1]


def _choose_labels(boxes: Array, probabilities: Array, objects: Array, thresholds: Array) -> tuple[Array, Array]:
    """Return the class each anchor of one picture should be read as, and which it may be, both `(anchors,)`.

    The first is -1 where an anchor is no decision by itself; the second is below 0 as label rows have it, else 0.
    """
    highest = (probabilities / thresholds).max(axis=1, initial=0)
    wanted, spared = np.where(highest >= FLOOR, 0, -1), np.zeros(len(boxes), np.int64)
    if not len(objects):
        return wanted, spared
    shared = overlaps(boxes, corners(objects[:, BOX]))
    nearest, near = shared.argmax(axis=1), shared.max(axis=1)
    kinds = objects[nearest, CLASS].astype(np.int64)
    wanted[near >= APART] = -1
    firing = (near >= MATCH) & (highest >= 1)
    wanted[firing] = kinds[firing]
    for number in range(len(objects)):
        matching = np.flatnonzero((near >= MATCH) & (nearest == number))
        if len(matching):
            kind = int(objects[number, CLASS])
            wanted[matching[probabilities[matching, kind - 1].argmax()]] = kind
    other = (near >= APART) & (wanted < 0)
    spared[other] = np.where(highest[other] >= 1, ANY_CLASS, -kinds[other])
    return wanted, spared
