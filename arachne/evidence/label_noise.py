"""Find negatives whose label looks wrong, so that a repair does not teach a labelling mistake.

The label of an input that is read as class p is suspect when P(p | input) is at least the mean of P(p | x) over the
inputs x that are labelled p (the self-confidence of confident learning; Northcutt et al., 2021), and at least
`MIN_AGREEING` of its `NEIGHBOURS` nearest inputs are labelled p. Either sign alone also fits an honest mistake of the
model; both together are a reason to check the label, not to delete the input.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from arachne.data.part import Part
from arachne.evidence.confidence import confidences_of
from arachne.model.values import Array, batches
from arachne.text import Brief

NEIGHBOURS = 10
MIN_AGREEING = 8
MAX_NEGATIVES = 2000
MAX_OTHERS = 10_000
MAX_VALUES = 1 << 24
"""The most numbers in the inputs that are compared with: the larger the inputs, the fewer are compared."""


@dataclass(frozen=True)
class LabelNoise(Brief):
    """Negatives that look mislabelled, the most suspect first; arrays `(k,)`.

    Attributes:
        rows: Row numbers in the user's data.
        positions: Row numbers in the part.
        labels: Their labels.
        predictions: Their predicted classes.
        confidence: The model's confidence.
        agreeing: How many of their ten nearest inputs have the predicted class as label.
    """

    rows: Array
    positions: Array
    labels: Array
    predictions: Array
    confidence: Array
    agreeing: Array

    def __len__(self) -> int:
        return len(self.rows)

    def __str__(self) -> str:
        """One sentence; empty if no label is suspect."""
        if not len(self):
            return ""
        rows = ", ".join(map(str, self.rows[:5].tolist())) + (", …" if len(self) > 5 else "")
        why = "the model is sure of another class, and inputs like {} have that class; check {} first"
        if len(self) == 1:
            return f"1 of the inputs to repair looks mislabelled (row {rows}): " + why.format("it", "its label")
        several = f"{len(self)} of the inputs to repair look mislabelled (rows {rows}): "
        return several + why.format("them", "the labels")


def find_label_noise(part: Part) -> LabelNoise:
    """Find the negatives of a part whose labels look wrong, going by the original model's scores.

    Inputs of several arrays have no common distance, so none of their labels is suspected; nor is the label of one
    decision of an input that has several.
    """
    positions = part.negatives[:MAX_NEGATIVES]
    if isinstance(part.data.inputs, Mapping) or not part.task.SINGLE or not len(positions):
        return _label_noise(part, positions[:0], np.zeros(0, dtype=np.int64))
    labels, predictions = part.data.labels, part.predictions
    own = confidences_of(part.scores, labels)
    usual = np.array([own[labels == c].mean() if (labels == c).any() else 1.0 for c in range(part.n_classes)])
    confidence = confidences_of(part.scores[positions], predictions[positions])
    positions = positions[confidence >= usual[predictions[positions]]]
    agreeing = _count_agreeing(part.data.inputs, labels, positions, predictions[positions])
    suspect = agreeing >= MIN_AGREEING
    return _label_noise(part, positions[suspect], agreeing[suspect])


def _count_agreeing(inputs: Array, labels: Array, positions: Array, predictions: Array) -> Array:
    """Count the nearest other inputs whose label is the predicted class."""
    size = max(1, int(np.prod(inputs.shape[1:])))
    step = max(1, -(-len(inputs) // max(NEIGHBOURS + 1, min(MAX_OTHERS, MAX_VALUES // size))))
    others = np.arange(0, len(inputs), step)  # every `step`-th input is compared with
    known = inputs[others].reshape(len(others), -1).astype(np.float32, copy=False)
    lengths = np.einsum("ij,ij->i", known, known)
    counts = np.zeros(len(positions), dtype=np.int64)
    for block in batches(len(positions), 256):
        asked = inputs[positions[block]].reshape(-1, known.shape[1]).astype(np.float32)
        distances = lengths - 2 * asked @ known.T
        distances[others == positions[block][:, None]] = np.inf
        for number, nearest in zip(range(block.start, block.stop), map(_nearest, distances), strict=True):
            counts[number] = (labels[others[nearest]] == predictions[number]).sum()
    return counts


def _nearest(distances: Array) -> Array:
    """Return the positions of the `NEIGHBOURS` smallest distances; the first of equals wins."""
    if len(distances) <= NEIGHBOURS:
        return np.arange(len(distances))
    largest = np.partition(distances, NEIGHBOURS - 1)[NEIGHBOURS - 1]
    near = np.flatnonzero(distances <= largest)
    return near[np.argsort(distances[near], kind="stable")][:NEIGHBOURS]


def _label_noise(part: Part, positions: Array, agreeing: Array) -> LabelNoise:
    predictions = part.predictions[positions]
    confidence = confidences_of(part.scores[positions], predictions)
    order = np.lexsort((positions, -np.round(confidence, 6), -agreeing))
    positions = positions[order]
    return LabelNoise(
        rows=part.rows[positions],
        positions=positions,
        labels=part.labels[positions],
        predictions=predictions[order],
        confidence=confidence[order],
        agreeing=agreeing[order],
    )
