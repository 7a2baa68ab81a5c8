"""Negatives whose label looks wrong: a repair must not teach a model somebody's labelling mistake.

An input that is read as class p is doubtful when P(p | input) is at least the mean of P(p | x) over the inputs x that
are labelled p (the self-confidence of confident learning; Northcutt et al., 2021), and at least `AGREEING` of its
`NEIGHBOURS` nearest inputs are labelled p. Either sign alone also fits an honest mistake of the model; both together
are a reason to look at the label, not to delete the input.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from arachne.data.split import Part
from arachne.evidence.confidence import confidences_of
from arachne.values import Array, batches

NEIGHBOURS = 10
AGREEING = 8
MOST_NEGATIVES = 2000
MOST_OTHERS = 10_000
MOST_VALUES = 1 << 24
"""How many numbers the inputs that are compared with may hold: the larger the inputs, the fewer are compared."""


@dataclass(frozen=True)
class Doubtful:
    """Negatives that look mislabelled, the most doubtful first; arrays `(k,)`.

    Attributes:
        rows: Row numbers in the user's data.
        positions: Row numbers in the part.
        labels: The labels they have.
        predictions: What the model reads them as.
        confidence: How sure it is.
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
        """One sentence for people; empty when nothing is doubtful."""
        if not len(self):
            return ""
        rows = ", ".join(map(str, self.rows[:5].tolist())) + (", …" if len(self) > 5 else "")
        why = "the model is sure of another class, and inputs like {} have that class; check {} first"
        if len(self) == 1:
            return f"1 of the inputs to repair looks mislabelled (row {rows}): " + why.format("it", "its label")
        several = f"{len(self)} of the inputs to repair look mislabelled (rows {rows}): "
        return several + why.format("them", "the labels")


def doubtful_labels(part: Part) -> Doubtful:
    """Find the negatives of a part whose labels look wrong, going by the original model's scores.

    Between inputs of several arrays there is no distance to go by, so none of them is doubted.
    """
    positions = part.negatives[:MOST_NEGATIVES]
    if isinstance(part.data.inputs, Mapping) or not len(positions):
        return _chosen(part, positions[:0], np.zeros(0, dtype=np.int64))
    labels, predictions = part.data.labels, part.predictions
    own = confidences_of(part.scores, labels)
    usual = np.array([own[labels == c].mean() if (labels == c).any() else 1.0 for c in range(part.n_classes)])
    confidence = confidences_of(part.scores[positions], predictions[positions])
    positions = positions[confidence >= usual[predictions[positions]]]
    agreeing = _agreeing(part.data.inputs, labels, positions, predictions[positions])
    kept = agreeing >= AGREEING
    return _chosen(part, positions[kept], agreeing[kept])


def _agreeing(inputs: Array, labels: Array, positions: Array, predictions: Array) -> Array:
    """How many of the nearest other inputs have the predicted class as their label."""
    size = max(1, int(np.prod(inputs.shape[1:])))
    step = max(1, -(-len(inputs) // max(NEIGHBOURS + 1, min(MOST_OTHERS, MOST_VALUES // size))))
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
    """The numbers of the `NEIGHBOURS` smallest distances; the first of equals wins."""
    if len(distances) <= NEIGHBOURS:
        return np.arange(len(distances))
    largest = np.partition(distances, NEIGHBOURS - 1)[NEIGHBOURS - 1]
    near = np.flatnonzero(distances <= largest)
    return near[np.argsort(distances[near], kind="stable")][:NEIGHBOURS]


def _chosen(part: Part, positions: Array, agreeing: Array) -> Doubtful:
    predictions = part.predictions[positions]
    confidence = confidences_of(part.scores[positions], predictions)
    order = np.lexsort((positions, -np.round(confidence, 6), -agreeing))
    positions = positions[order]
    return Doubtful(
        rows=part.rows[positions],
        positions=positions,
        labels=part.data.labels[positions],
        predictions=predictions[order],
        confidence=confidence[order],
        agreeing=agreeing[order],
    )
