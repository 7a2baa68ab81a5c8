"""ReferenceScores: the plain evaluator's scores, bit for bit, by a cut or on a subset where that is safe.

A cut that runs all inputs through the layers behind the touched ones does the same computations in the same shapes as a
full forward pass, without the part in front that no candidate changes. So its scores should be the same bits.

The same holds for some of the inputs. A matrix product adds up each row by itself, so a row gives the same bits with
any other rows beside it, as long as the rows are many enough, and a multiple of `values.EVEN`, to go through the same
machine code.

Neither is assumed. Both are compared with full passes, the second on shuffled inputs, until enough different numbers
were equal; the second on later candidates too. After one differing bit the shortcut is not used again. A candidate
unlike the compared ones gets a full pass: a backend may use other code for weights equal to those of its file, and may
treat NaN and infinity differently where numbers overflow.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from arachne.model.backend import Cut
from arachne.model.values import EVEN, Array
from arachne.scoring.evaluator import PlainEvaluator

SUBSET_SIZES = (8 * EVEN, 4 * EVEN, 2 * EVEN)
"""Subsets of these sizes may run through the model alone, if that returns the same bits."""

SUBSETS_COMPARED = 4
"""The number of subsets of each size that are compared with a candidate's full pass."""

MIN_EQUAL_NUMBERS = 1000
"""The number of different scores that must be equal: two orders of summation often agree on a few."""

MAX_WEIGHT_RATIO = 1e6
"""A candidate is like the compared ones while its values are at most this many times the weights of their parameter."""


class ReferenceScores:
    """The plain evaluator's scores.

    Args:
        plain: The plain evaluator.
        cut: A cut of the model for all inputs that count, if there is one.
    """

    def __init__(self, plain: PlainEvaluator, cut: Cut | None) -> None:
        self._plain = plain
        self._cut = cut
        self._sizes = list(SUBSET_SIZES)
        self._compared = 0
        self._changes = np.zeros(len(plain.suspects), bool)
        self.whole_passes = 0
        """The number of candidates evaluated on all inputs."""
        self.subset_passes = 0
        """The number of candidates evaluated on a subset."""

    @property
    def by_cut(self) -> bool:
        """Whether a cut replaces full forward passes."""
        return self._compared >= MIN_EQUAL_NUMBERS and self._cut is not None

    @property
    def has_subsets(self) -> bool:
        """Whether some inputs can be evaluated without the others."""
        return self._compared >= MIN_EQUAL_NUMBERS and bool(self._sizes)

    def prove(self, trial: Array) -> Array:
        """Return a candidate's scores by a full pass, and compare the shortcuts with it until enough were equal."""
        if self._compared >= MIN_EQUAL_NUMBERS:
            return self.scores(trial)
        scores = self._plain.scores(trial)
        self._changes = trial != self._plain.suspects.values
        if self._cut is not None and not _same_bits(self._score_subsets(trial, [None])[0], scores):
            self._cut = None
        shuffled = np.random.default_rng(self._compared).permutation(len(scores))
        self._sizes = [
            size
            for size in self._sizes
            if 2 * size <= len(scores) and self._agree(trial, scores, shuffled[: SUBSETS_COMPARED * size], [size])
        ]
        self._compared += len(np.unique(scores))
        return scores

    def scores(self, trial: Array) -> Array:
        """Return a candidate's scores of all inputs, `(n, classes)`."""
        self.whole_passes += 1
        return self._score_subsets(trial, [None])[0] if self._is_usual(trial) else self._plain.scores(trial)

    def of_rows(self, trial: Array, rows: Array) -> Array:
        """Return a candidate's scores of some inputs, `(rows, classes)`. Call it only if `has_subsets`."""
        if not self._is_usual(trial):
            return np.asarray(self.scores(trial)[rows])
        self.subset_passes += 1
        return self._in_subsets(trial, rows, self._sizes)

    def check_subsets(self, trial: Array, scores: Array, rows: Array) -> None:
        """Compare some inputs evaluated without the others with scores of a whole evaluation `(n, classes)`."""
        if len(rows) and self._is_usual(trial) and self._sizes and not self._agree(trial, scores, rows, self._sizes):
            self._sizes = []

    def _is_usual(self, trial: Array) -> bool:
        """Tell whether the comparisons are finished, and a candidate is like the compared ones."""
        if self._compared < MIN_EQUAL_NUMBERS:
            return False
        suspects = self._plain.suspects
        moderate = bool((np.abs(trial) <= MAX_WEIGHT_RATIO * suspects.magnitudes).all())
        return moderate and np.array_equal(trial != suspects.values, self._changes)

    def _agree(self, trial: Array, scores: Array, rows: Array, sizes: Sequence[int]) -> bool:
        return _same_bits(self._in_subsets(trial, rows, sizes), scores[rows])

    def _in_subsets(self, trial: Array, rows: Array, sizes: Sequence[int]) -> Array:
        """Score some rows in subsets of these sizes; the last subset is filled up with some of the first rows."""
        subsets: list[Array | None] = []
        start = 0
        while start < len(rows):
            # The smallest set that holds the remaining rows, or else the largest there is.
            size = min((size for size in sizes if size >= len(rows) - start), default=max(sizes))
            subsets.append(np.resize(rows, start + size)[start:])
            start += size
        return np.concatenate(self._score_subsets(trial, subsets))[: len(rows)]

    def _score_subsets(self, trial: Array, subsets: Sequence[Array | None]) -> list[Array]:
        """Score subsets of the inputs, None for all, behind the cut or by full passes."""
        if self._cut is None:
            return [self._plain.scores(trial, rows) for rows in subsets]
        weights, n = self._plain.weights_with(trial), len(self._plain.fitness_inputs)
        return [self._cut.scores_with(weights, rows)[:n] for rows in subsets]


def _same_bits(found: Array, scores: Array) -> bool:
    return found.dtype == scores.dtype and np.array_equal(found, scores, equal_nan=True)
