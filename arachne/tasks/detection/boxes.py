"""Boxes: the rows of labels that hold them, how far two overlap, and which of several are of one object.

Labels of a picture are rows `(class, x, y, width, height, anchor)`. A row whose anchor is 0 is a labelled box: classes
count from 1, 0 being background; x and y are its centre; all four are shares of the picture's width and height, until
they are brought to the unit of the model's boxes. A row of zeros is no box, so that pictures with few boxes are padded
with zeros. A row with an anchor, counted from 1, is a decision: what that anchor of the outputs should be read as. With
a class below 0 it is none, and says which class that anchor may be read as. A row whose anchor is `REST` is a decision
about all anchors without a row: none of them should be read as anything but background.
"""

from __future__ import annotations

import numpy as np

from arachne.decisions.decisions import Array

CLASS, ANCHOR = 0, 5
BOX = slice(1, 5)
COLUMNS = 6

REST = -1
"""The anchor of the row that stands for all anchors without a row."""

ANY_CLASS = -1_000_000
"""The class of an anchor that may be read as any class."""

BACKGROUND = "background"
"""The name of class 0."""


def corners(boxes: Array) -> Array:
    """Convert centre and size `(..., 4)` to left, top, right and bottom `(..., 4)`."""
    centres, halves = boxes[..., :2], boxes[..., 2:] / 2
    return np.concatenate([centres - halves, centres + halves], axis=-1)


def overlaps(boxes: Array, others: Array) -> Array:
    """Return the area shared by each pair of boxes over the area of both, `(k, l)`.

    Args:
        boxes: Left, top, right and bottom, `(k, 4)`.
        others: The same of others, `(l, 4)`.
    """
    low = np.maximum(boxes[:, None, :2], others[None, :, :2])
    high = np.minimum(boxes[:, None, 2:], others[None, :, 2:])
    shared = np.clip(high - low, 0, None).prod(axis=2)
    areas = [np.clip(of[:, 2:] - of[:, :2], 0, None).prod(axis=1) for of in (boxes, others)]
    both = areas[0][:, None] + areas[1][None] - shared
    found: Array = np.divide(shared, both, out=np.zeros_like(shared), where=both > 0)
    return found


def suppress(boxes: Array, scores: Array, most: float) -> Array:
    """Return which boxes stay, best first, once each takes away those that overlap with it by more than `most`.

    Args:
        boxes: Left, top, right and bottom, `(k, 4)`, all of one class.
        scores: `(k,)`; the highest stays.
        most: The largest overlap of two boxes that both stay.
    """
    order = np.argsort(-scores, kind="stable")
    shared = overlaps(boxes[order], boxes[order]) > most
    stays = np.ones(len(order), dtype=bool)
    for at in range(len(order)):
        if stays[at]:
            stays[at + 1 :] &= ~shared[at, at + 1 :]
    return order[stays]


def labelled_boxes(labels: Array) -> Array:
    """Return the labelled boxes of one picture, `(k, COLUMNS)`, from its label rows."""
    found: Array = labels[(labels[:, ANCHOR] == 0) & (labels[:, CLASS] > 0)]
    return found


def pad_rows(rows: list[Array]) -> Array:
    """Stack the label rows `(k, COLUMNS)` of each picture into one array `(n, most, COLUMNS)`."""
    found = np.zeros((len(rows), max([1, *map(len, rows)]), COLUMNS))
    for at, own in enumerate(rows):
        found[at, : len(own)] = own
    return found
