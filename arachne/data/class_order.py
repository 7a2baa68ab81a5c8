"""Check that the labels are in the model's order of classes; if not, whole classes look like mistakes.

Every label is assigned the class it is mostly read as, each class once (`linear_sum_assignment`). If some labels
are permuted in a cycle, and the model reads them that way more often than as themselves, their order is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from arachne.data.confusions import PairCounts
from arachne.data.labelled import LabelledData
from arachne.data.part import Part
from arachne.errors import DataError
from arachne.model.values import Array
from arachne.text import percent

MIN_RING_INPUTS = 20
"""The fewest inputs in a cycle of classes: with fewer, it could be chance."""

MAX_LISTED = 12
"""The most labels listed in the message."""

MAX_TABLE_CLASSES = 200
"""The most classes for which a table of all pairs is made."""


@dataclass(frozen=True)
class ClassOrder:
    """Another order of the classes that fits the model better.

    Attributes:
        read_as: The class the model reads each of these labels as.
        accuracy: The accuracy with the labels as they are.
        better: The accuracy in the other order.
    """

    read_as: Mapping[int, int]
    accuracy: float
    better: float

    def describe(self, data: LabelledData) -> str:
        """Say in one sentence how accurate another order is, and which label is which class."""
        pairs = [
            f"'{data.class_name(label)}' is its class {number}"
            for label, number in list(self.read_as.items())[:MAX_LISTED]
        ]
        more = "" if len(self.read_as) <= MAX_LISTED else f", and {len(self.read_as) - MAX_LISTED} more"
        return (
            f"the model is right on {percent(self.accuracy)} of {len(data)} inputs, and another order of the classes "
            f"gives {percent(self.better)}: going by what the model reads, label {', '.join(pairs)}{more}; "
            + ("number the labels as the model does" if data.class_names is None else "give the names in its order")
        )


def other_order(labels: Array, predictions: Array, n_classes: int) -> ClassOrder | None:
    """Find an order of classes under which labels and predictions `(n,)` agree better; None if there is none."""
    counts = PairCounts.of(labels, predictions, n_classes)
    own = np.zeros(n_classes, np.int64)
    same = counts.labels == counts.predictions
    own[counts.labels[same]] = counts.counts[same]
    most = np.zeros(n_classes, np.int64)
    np.maximum.at(most, counts.labels, counts.counts)
    if (most == own).all():  # no label is read as another class more often than as its own
        return None
    best, there = _assign(counts, own)
    totals = np.bincount(labels, minlength=n_classes)
    moved: dict[int, int] = {}
    for ring in _rings(best):
        total = totals[ring].sum()
        if total >= MIN_RING_INPUTS and 2 * there[ring].sum() > total and (there[ring] > own[ring]).all():
            moved |= {int(label): int(best[label]) for label in ring}
    if not moved:
        return None
    changed = list(moved)
    right = int(own.sum()), int(own.sum() - own[changed].sum() + there[changed].sum())
    return ClassOrder(dict(sorted(moved.items())), right[0] / len(labels), right[1] / len(labels))


def _assign(counts: PairCounts, own: Array) -> tuple[Array, Array]:
    """Assign a class to each label; also return how many of its inputs the model reads as that, `(classes,)` both.

    With many classes only pairs that occur are assigned, and each label may keep its own class. Cycles that are
    reported have no other pairs.
    """
    # Imported here and not above: scipy is slow to load, and most of what reads data does without it.
    n = counts.n_classes
    if n <= MAX_TABLE_CLASSES:
        from scipy.optimize import linear_sum_assignment

        table = counts.dense()
        _, best = linear_sum_assignment(table + 0.5 * np.eye(n), maximize=True)
        return best, table[np.arange(n), best]
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import min_weight_full_bipartite_matching

    apart = counts.labels != counts.predictions
    labels = np.concatenate([counts.labels[apart], np.arange(n)])
    classes = np.concatenate([counts.predictions[apart], np.arange(n)])
    gains = np.concatenate([counts.counts[apart], own + 0.5])
    _, best = min_weight_full_bipartite_matching(coo_array((gains, (labels, classes)), (n, n)).tocsr(), maximize=True)
    known = dict(zip(zip(labels.tolist(), classes.tolist(), strict=True), gains.tolist(), strict=True))
    there = np.array([int(known[label, number]) for label, number in enumerate(best.tolist())], np.int64)
    return best, there


def check_class_order(part: Part) -> None:
    """Refuse labels in another order than the model's classes, because a repair would teach the wrong order.

    Raises:
        DataError: Another order fits better; the message says which.
    """
    found = other_order(np.asarray(part.labels), part.predictions, part.n_classes)
    if found is not None:
        raise DataError(found.describe(part.data), argument=None if part.data.class_names is None else "classes")


def _rings(order: Array) -> list[Array]:
    """Return the cycles of a permutation, without fixed points."""
    left, rings = set(np.flatnonzero(order != np.arange(len(order))).tolist()), []
    while left:
        ring, at = [], min(left)
        while at in left:
            left.remove(at)
            ring.append(at)
            at = int(order[at])
        rings.append(np.array(ring))
    return rings
