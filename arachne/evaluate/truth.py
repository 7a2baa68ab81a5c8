"""What the plain evaluator says, as cheaply as it can be had bit for bit.

A cut that runs all inputs behind the touched layers does the very same computations in the very same shapes as a full
forward pass, only without the part before them that no candidate changes; where it does, its scores are the same bits.
Whether it does is not taken on trust: it is compared on whole candidates first, and one bit of difference is enough to
go back to full forward passes for good.
"""

from __future__ import annotations

import numpy as np

from arachne.backend import Cut
from arachne.evaluate.plain import PlainEvaluator
from arachne.values import Array


class Truth:
    """The plain evaluator's scores.

    Args:
        plain: The reference.
        cut: The model cut for all inputs of the stake, or None to do without.
    """

    def __init__(self, plain: PlainEvaluator, cut: Cut | None) -> None:
        self._plain = plain
        self._cut = cut
        self.passes = 0
        """How many candidates were evaluated."""

    @property
    def by_cut(self) -> bool:
        """Whether a cut stands in for full forward passes."""
        return self._cut is not None

    def prove(self, trial: Array) -> Array:
        """A candidate's scores by a full forward pass, with which the cut is compared."""
        scores = self._plain.scores(trial)
        if self._cut is not None:
            found = self._cut.scores_with(self._plain.weights_with(trial))
            if found.dtype != scores.dtype or not np.array_equal(found, scores, equal_nan=True):
                self._cut = None
        return scores

    def scores(self, trial: Array) -> Array:
        """A candidate's scores `(n, classes)`."""
        self.passes += 1
        if self._cut is None:
            return self._plain.scores(trial)
        return self._cut.scores_with(self._plain.weights_with(trial))
