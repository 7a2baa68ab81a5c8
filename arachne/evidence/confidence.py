"""Calibration of a model, and the effect of a threshold on its confidence.

In practice a decision is rarely a bare argmax: below some confidence a person or a fallback decides. A repair that
shifts the confidences also shifts which inputs are decided that way.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from arachne.model.values import Array
from arachne.scoring.statistics import Rate
from arachne.text import Brief

BINS = 10
THRESHOLDS = (0.5, 0.7, 0.8, 0.9, 0.95, 0.99)
BLOCK_SCORES = 1 << 20
"""Scores whose probabilities are computed at once: all of many thousand classes would take several times their room."""


@dataclass(frozen=True)
class Threshold:
    """The effect of using only predictions with at least this confidence.

    Attributes:
        threshold: The least confidence.
        decided: The share of predictions that reach it.
        right: The share of those that are right.
    """

    threshold: float
    decided: Rate
    right: Rate


@dataclass(frozen=True)
class Confidence(Brief):
    """Confidences of one model on one part of the data, in `BINS` bins of equal width; arrays `(BINS,)`.

    Attributes:
        counts: Inputs in each bin.
        confidence: Mean confidence in each bin; NaN if it is empty.
        accuracy: Share of right ones in each bin; NaN if it is empty.
        mean: Mean confidence of all inputs; NaN if there are none.
        thresholds: The effect of each of `THRESHOLDS`.
    """

    counts: Array
    confidence: Array
    accuracy: Array
    mean: float
    thresholds: tuple[Threshold, ...]

    @property
    def error(self) -> float:
        """Expected calibration error: `sum(counts * |confidence - accuracy|) / sum(counts)`; NaN without inputs."""
        total = int(self.counts.sum())
        if not total:
            return float("nan")
        gaps = np.abs(self.confidence - self.accuracy)
        return float(np.nansum(self.counts * gaps) / total)

    @classmethod
    def measure(cls, confidences: Array, right: Array) -> Confidence:
        """Measure from the confidence of every prediction `(n,)` and whether it is right `(n,)`."""
        bins = np.minimum((np.asarray(confidences) * BINS).astype(np.int64), BINS - 1)
        counts = np.bincount(bins, minlength=BINS)
        shares = np.where(counts > 0, counts, 1)
        empty = np.where(counts > 0, 0.0, np.nan)
        return cls(
            counts=counts,
            confidence=np.bincount(bins, weights=confidences, minlength=BINS) / shares + empty,
            accuracy=np.bincount(bins, weights=right, minlength=BINS) / shares + empty,
            mean=float(confidences.mean()) if len(confidences) else float("nan"),
            thresholds=tuple(_threshold(threshold, confidences, right) for threshold in THRESHOLDS),
        )


def confidences_of(scores: Array, classes: Array) -> Array:
    """Return the probability `(n,)` of one class per input, from logits or log-probabilities `(n, classes)`."""
    scores, classes = np.asarray(scores), np.asarray(classes)
    found, rows = np.zeros(len(scores)), max(1, BLOCK_SCORES // max(1, scores.shape[-1]))
    for start in range(0, len(scores), rows):
        block = scores[start : start + rows].astype(np.float64)
        block -= block.max(axis=1, keepdims=True)
        chosen = np.take_along_axis(block, classes[start : start + rows, None], axis=1)[:, 0]
        found[start : start + rows] = np.exp(chosen) / np.exp(block, out=block).sum(axis=1)
    return found


def _threshold(threshold: float, confidences: Array, right: Array) -> Threshold:
    decided = confidences >= threshold
    sure = int(decided.sum())
    return Threshold(threshold, Rate(sure, len(decided)), Rate(int((decided & right).sum()), sure))
