"""Negatives whose label looks wrong: a repair must not teach a model somebody's slip of the mouse.

An input is doubtful when the model is as sure of its own reading as it is on average of inputs that really have that
class (the self-confidence of confident learning; Northcutt et al., 2021), and most of the inputs that look like it
bear that class too. Either sign alone also fits an honest fault; both together are worth a look, not a deletion.
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
MOST_VALUES = 1 << 26
"""Numbers compared with at once; of larger inputs, fewer others are looked at."""


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
        several = f"{len(self)} of the inputs to repair look mislabelled (rows {rows})"
        one = f"1 of the inputs to repair looks mislabelled (row {rows})"
        return (
            f"{one if len(self) == 1 else several}: the model is sure of another class, and inputs like it have that "
            "class; check the labels first"
        )


def doubtful_labels(part: Part) -> Doubtful:
    """Find the negatives of a part whose labels look wrong, going by the original model's scores.

    Inputs that are mappings of several arrays have no distance we could trust; none of theirs is doubted.
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
    others = np.arange(0, len(inputs), step)
    known = inputs[others].reshape(len(others), -1).astype(np.float32)
    lengths = (known * known).sum(axis=1)
    counts = np.zeros(len(positions), dtype=np.int64)
    for block in batches(len(positions), 256):
        asked = inputs[positions[block]].reshape(-1, known.shape[1]).astype(np.float32)
        distances = lengths - 2 * asked @ known.T
        distances[others == positions[block][:, None]] = np.inf
        nearest = np.argsort(distances, axis=1, kind="stable")[:, :NEIGHBOURS]
        counts[block] = (labels[others[nearest]] == predictions[block][:, None]).sum(axis=1)
    return counts


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
