"""RoundedScorer: scores of whole numbers by the model's own runtime, gradients as if nothing was rounded."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from arachne.model.backend import LossGradient
from arachne.model.values import Array
from arachne.scoring.base import Scorer


class RoundedScorer(Scorer):
    """Scores of a quantised model, whose dense layers at the end are differentiated in NumPy.

    Losses see the runtime's scores of the original model and what a change adds to them where nothing is rounded.

    Args:
        exact: Computes scores in the runtime.
        smooth: Computes scores and gradients without rounding.
        original: The suspects' original values `(k,)`.
        n: The number of inputs.
    """

    def __init__(self, exact: Scorer, smooth: Scorer, original: Array, n: int) -> None:
        self._exact, self._smooth, self._original, self._n = exact, smooth, original, n

    def scores(self, values: Array, rows: Array) -> Array:
        return self._exact.scores(values, rows)

    def gradients(self, values: Array, loss_gradient: LossGradient, rows: Array) -> Array:
        offsets = self._offsets[rows]

        def at_exact_scores(scores: Array, part: slice) -> Array:
            return loss_gradient(scores + offsets[part], part)

        return self._smooth.gradients(values, at_exact_scores, rows)

    @cached_property
    def _offsets(self) -> Array:
        """Compute how much rounding changes the original scores, `(n, classes)`."""
        every = np.arange(self._n)
        return self._exact.scores(self._original, every) - self._smooth.scores(self._original, every)
