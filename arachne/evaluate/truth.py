"""What the plain evaluator says, as cheaply as it can be had bit for bit.

A cut that runs all inputs behind the touched layers does the very same computations in the very same shapes as a full
forward pass, only without the part before them that no candidate changes; where it does, its scores are the same bits.

The same holds for some of the inputs. A matrix product adds up each row by itself, so that a row comes out alike in any
company, as long as the company is large enough, and even (`values.EVEN`), to go through the same code.

Neither is taken on trust. Both are compared on whole candidates first, shuffled for the second, until enough numbers
came out alike, and the second on the next candidates too; one bit of difference is enough to do without. A candidate
that is not like the first ones gets a full forward pass: a backend may take other code for weights that are as they
were, and numbers that overflow may become none or be passed over.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from arachne.backend import Cut
from arachne.evaluate.plain import PlainEvaluator
from arachne.values import EVEN, Array

TOGETHER = (8 * EVEN, 4 * EVEN, 2 * EVEN)
"""How many inputs go through the model together when only some are wanted, where that many give the same bits."""

SETS = 4
"""How many sets of each size are compared with a candidate's whole evaluation."""

ENOUGH = 1000
"""So many different numbers have to come out alike: two ways of adding up often agree on a few."""

WILDEST = 1e6
"""A candidate is like others up to so many times the weights of its layers."""


class Truth:
    """The plain evaluator's scores.

    Args:
        plain: The reference.
        cut: The model cut for all inputs of the stake, or None to do without.
    """

    def __init__(self, plain: PlainEvaluator, cut: Cut | None) -> None:
        self._plain = plain
        self._cut = cut
        self._sizes = list(TOGETHER)
        self._compared = 0
        self._changes = np.zeros(len(plain.suspects), bool)
        self.passes = 0
        """How many candidates were evaluated on all inputs."""
        self.parts = 0
        """How many were evaluated on some of them."""

    @property
    def by_cut(self) -> bool:
        """Whether a cut stands in for full forward passes."""
        return self._compared >= ENOUGH and self._cut is not None

    @property
    def has_parts(self) -> bool:
        """Whether some inputs can be evaluated without the others."""
        return self._compared >= ENOUGH and bool(self._sizes)

    def prove(self, trial: Array) -> Array:
        """A candidate's scores, by a full forward pass with which all else is compared until that was done enough."""
        if self._compared >= ENOUGH:
            return self.scores(trial)
        scores = self._plain.scores(trial)
        self._changes = trial != self._plain.suspects.values
        if self._cut is not None and not _same_bits(self._evaluated(trial, [None])[0], scores):
            self._cut = None
        shuffled = np.random.default_rng(self._compared).permutation(len(scores))
        self._sizes = [
            size
            for size in self._sizes
            if 2 * size <= len(scores) and self._agree(trial, scores, shuffled[: SETS * size], [size])
        ]
        self._compared += len(np.unique(scores))
        return scores

    def scores(self, trial: Array) -> Array:
        """A candidate's scores `(n, classes)`."""
        self.passes += 1
        return self._evaluated(trial, [None])[0] if self._is_usual(trial) else self._plain.scores(trial)

    def check_parts(self, trial: Array, scores: Array, rows: Array) -> None:
        """Compare some inputs evaluated without the others with what a whole evaluation said `(n, classes)`."""
        if len(rows) and self._is_usual(trial) and self._sizes and not self._agree(trial, scores, rows, self._sizes):
            self._sizes = []

    def some(self, trial: Array, rows: Array) -> Array:
        """A candidate's scores of some inputs, `(rows, classes)`; only where there are parts."""
        if not self._is_usual(trial):
            return np.asarray(self.scores(trial)[rows])
        self.parts += 1
        return self._in_parts(trial, rows, self._sizes)

    def _is_usual(self, trial: Array) -> bool:
        """Whether a candidate is like those that were compared, and those were enough."""
        if self._compared < ENOUGH:
            return False
        suspects = self._plain.suspects
        tame = bool((np.abs(trial) <= WILDEST * suspects.magnitudes).all())
        return tame and np.array_equal(trial != suspects.values, self._changes)

    def _agree(self, trial: Array, scores: Array, rows: Array, sizes: Sequence[int]) -> bool:
        return _same_bits(self._in_parts(trial, rows, sizes), scores[rows])

    def _in_parts(self, trial: Array, rows: Array, sizes: Sequence[int]) -> Array:
        """As many inputs at a time as were compared; the last ones go along with some of the first."""
        parts: list[Array | None] = []
        start = 0
        while start < len(rows):
            # The smallest set that holds what is left, or else the largest.
            size = min((size for size in sizes if size >= len(rows) - start), default=max(sizes))
            parts.append(np.resize(rows, start + size)[start:])
            start += size
        return np.concatenate(self._evaluated(trial, parts))[: len(rows)]

    def _evaluated(self, trial: Array, parts: Sequence[Array | None]) -> list[Array]:
        """Scores of some sets of inputs, None for all, behind the cut or by full passes."""
        if self._cut is None:
            return [self._plain.scores(trial, part) for part in parts]
        weights, n = self._plain.weights_with(trial), len(self._plain.stake.labels)
        return [self._cut.scores_with(weights, part)[:n] for part in parts]


def _same_bits(found: Array, scores: Array) -> bool:
    return found.dtype == scores.dtype and np.array_equal(found, scores, equal_nan=True)
