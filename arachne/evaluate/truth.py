"""What the plain evaluator says, as cheaply as it can be had bit for bit.

A cut that runs all inputs behind the touched layers does the very same computations in the very same shapes as a full
forward pass, only without the part before them that no candidate changes; where it does, its scores are the same bits.

The same holds for some of the inputs. A matrix product adds up each row by itself, so that a row comes out alike in any
company, as long as the company is large enough to go through the same code.

Neither is taken on trust. Both are compared on a whole candidate first, shuffled for the second, and one bit of
difference is enough to do without.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from arachne.backend import Cut
from arachne.evaluate.plain import PlainEvaluator
from arachne.values import Array

TOGETHER = (256, 128, 64)
"""How many inputs go through the model together when only some are wanted, where that many give the same bits."""

Way = Callable[[Array, Sequence[Array | None]], list[Array]]
"""From a candidate and some sets of inputs, None for all, to the scores of each set."""


class Truth:
    """The plain evaluator's scores.

    Args:
        plain: The reference.
        cut: The model cut for all inputs of the stake, or None to do without.
    """

    def __init__(self, plain: PlainEvaluator, cut: Cut | None) -> None:
        self._plain = plain
        self._cut = cut
        self._way: Way = self._by_full_passes
        self._sizes: list[int] = []
        self.passes = 0
        """How many candidates were evaluated on all inputs."""
        self.parts = 0
        """How many were evaluated on some of them."""

    @property
    def by_cut(self) -> bool:
        """Whether a cut stands in for full forward passes."""
        return self._way == self._by_cut

    @property
    def has_parts(self) -> bool:
        """Whether some inputs can be evaluated without the others."""
        return bool(self._sizes)

    def prove(self, trial: Array) -> Array:
        """A candidate's scores by a full forward pass, with which all else is compared."""
        scores = self._plain.scores(trial)
        if self._cut is not None and _same_bits(self._by_cut(trial, [None])[0], scores):
            self._way = self._by_cut
        rows = np.random.default_rng(0).permutation(len(scores))
        for size in TOGETHER:
            if 2 * size <= len(rows) and _same_bits(self._in_parts(trial, rows, [size]), scores[rows]):
                self._sizes.append(size)
        return scores

    def scores(self, trial: Array) -> Array:
        """A candidate's scores `(n, classes)`."""
        self.passes += 1
        return self._way(trial, [None])[0]

    def some(self, trial: Array, rows: Array) -> Array:
        """A candidate's scores of some inputs, `(rows, classes)`; only where there are parts."""
        self.parts += 1
        return self._in_parts(trial, rows, self._sizes)

    def _in_parts(self, trial: Array, rows: Array, sizes: Sequence[int]) -> Array:
        """As many inputs at a time as were compared; the last ones go along with some of the first."""
        parts: list[Array | None] = []
        start = 0
        while start < len(rows):
            # The smallest set that holds what is left, or else the largest.
            size = min((size for size in sizes if size >= len(rows) - start), default=max(sizes))
            parts.append(np.resize(rows, start + size)[start:])
            start += size
        return np.concatenate(self._way(trial, parts))[: len(rows)]

    def _by_cut(self, trial: Array, parts: Sequence[Array | None]) -> list[Array]:
        if self._cut is None:
            raise ValueError("there is no cut")
        weights = self._plain.weights_with(trial)
        return [self._cut.scores_with(weights, part) for part in parts]

    def _by_full_passes(self, trial: Array, parts: Sequence[Array | None]) -> list[Array]:
        return [self._plain.scores(trial, part) for part in parts]


def _same_bits(found: Array, scores: Array) -> bool:
    return found.dtype == scores.dtype and np.array_equal(found, scores, equal_nan=True)
