"""Are the labels in the model's order of classes? If not, whole classes are read as each other, and nothing is broken.

Every label gets the class the model reads it as most, each class once (`linear_sum_assignment`). Where labels then take
each other's places in a ring, and the model reads them so more often than as themselves, their order is another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from arachne.data.labelled import LabelledData
from arachne.data.split import Part
from arachne.errors import DataError
from arachne.values import Array

FEWEST = 20
"""With fewer inputs, a ring of classes could be chance."""

MOST_TOLD = 12


@dataclass(frozen=True)
class ClassOrder:
    """Another order of the classes that fits the model better.

    Attributes:
        moved: The class the model reads each of these labels as.
        accuracy: Share of inputs that is right as the labels are.
        better: The same in the other order.
    """

    moved: Mapping[int, int]
    accuracy: float
    better: float

    def told(self, data: LabelledData) -> str:
        """One sentence: what another order gives, and which label is which class."""
        pairs = [
            f"'{data.class_name(label)}' is its class {place}" for label, place in list(self.moved.items())[:MOST_TOLD]
        ]
        more = "" if len(self.moved) <= MOST_TOLD else f", and {len(self.moved) - MOST_TOLD} more"
        return (
            f"the model is right on {self.accuracy:.1%} of {len(data)} inputs, and another order of the classes gives "
            f"{self.better:.1%}: going by what the model reads, label {', '.join(pairs)}{more}; "
            + ("number the labels as the model does" if data.class_names is None else "give the names in its order")
        )


def other_order(labels: Array, predictions: Array, n_classes: int) -> ClassOrder | None:
    """The order of classes that fits better, from labels and predictions `(n,)`; None when this one does."""
    counts = np.bincount(labels * n_classes + predictions, minlength=n_classes**2).reshape(n_classes, n_classes)
    if (counts.max(axis=1) == np.diag(counts)).all():  # no label is read as another class more often than as its own
        return None
    # Imported here and not above: scipy is slow to load, and most of what reads data does without it.
    from scipy.optimize import linear_sum_assignment

    _, best = linear_sum_assignment(counts + 0.5 * np.eye(n_classes), maximize=True)
    moved: dict[int, int] = {}
    for ring in _rings(best):
        there = counts[ring, best[ring]]
        total = counts[ring].sum()
        if total >= FEWEST and 2 * there.sum() > total and (there > counts[ring, ring]).all():
            moved |= {int(label): int(best[label]) for label in ring}
    if not moved:
        return None
    order = np.arange(n_classes)
    order[list(moved)] = list(moved.values())
    right = int(np.trace(counts)), int(counts[np.arange(n_classes), order].sum())
    return ClassOrder(dict(sorted(moved.items())), right[0] / len(labels), right[1] / len(labels))


def check_class_order(part: Part) -> None:
    """Stop when the labels are in another order than the model's classes: a repair would teach the wrong order.

    Raises:
        DataError: With what another order gives.
    """
    found = other_order(np.asarray(part.data.labels), part.predictions, part.n_classes)
    if found is not None:
        raise DataError(found.told(part.data), argument=None if part.data.class_names is None else "classes")


def _rings(order: Array) -> list[Array]:
    """The cycles of a permutation, without the classes that keep their place."""
    left, rings = set(np.flatnonzero(order != np.arange(len(order))).tolist()), []
    while left:
        ring, at = [], min(left)
        while at in left:
            left.remove(at)
            ring.append(at)
            at = int(order[at])
        rings.append(np.array(ring))
    return rings
