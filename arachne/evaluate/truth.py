"""What the plain evaluator says, as cheaply as it can be had bit for bit.

A cut that runs all inputs behind the touched layers does the very same computations in the very same shapes as a full
forward pass, only without the part before them that no candidate changes; where it does, its scores are the same bits.
Whether it does is not taken on trust: it is compared on whole candidates first, and one bit of difference is enough to
go back to full forward passes for good.

The same holds for some of the inputs: whether a run of neighbouring inputs gets the same bits when it goes through the
cut alone depends on how a framework parts its matrix products, so several lengths of runs are tried.
"""

from __future__ import annotations

import numpy as np

from arachne.backend import Cut
from arachne.evaluate.plain import PlainEvaluator
from arachne.values import Array

RUNS = (64, 256, 1024)
"""Lengths of runs that are tried, shortest first."""


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
        self.runs = 0
        """How many runs of inputs were evaluated alone."""
        self._lengths = list(RUNS)

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
            else:
                self._try_runs(trial, scores)
        return scores

    @property
    def run(self) -> int | None:
        """How many neighbouring inputs can be evaluated alone; None where all have to be."""
        return self._lengths[0] if self._cut is not None and self._lengths else None

    def some(self, trial: Array, rows: Array) -> tuple[Array, Array]:
        """The scores of some inputs and their neighbours: row numbers and `(rows, classes)`."""
        if self._cut is None or self.run is None:
            raise ValueError("the plain evaluator was not asked whether runs can be evaluated alone")
        weights = self._plain.weights_with(trial)
        runs = [self._rows(int(number), self.run) for number in np.unique(rows // self.run)]
        self.runs += len(runs)
        return np.concatenate(runs), np.concatenate([self._cut.scores_with(weights, run) for run in runs])

    def _rows(self, number: int, length: int) -> Array:
        return np.arange(number * length, min((number + 1) * length, len(self._plain.stake.labels)))

    def _try_runs(self, trial: Array, scores: Array) -> None:
        """Leave out lengths whose runs get other bits alone, up to the first that does not."""
        if self._cut is None:
            return
        weights, n = self._plain.weights_with(trial), len(scores)
        while self._lengths:
            length = self._lengths[0]
            runs = [self._rows(number, length) for number in range(-(-n // length))]
            if 2 * length <= n and all(
                np.array_equal(self._cut.scores_with(weights, run), scores[run], equal_nan=True) for run in runs
            ):
                return
            self._lengths.pop(0)

    def scores(self, trial: Array) -> Array:
        """A candidate's scores `(n, classes)`."""
        self.passes += 1
        if self._cut is None:
            return self._plain.scores(trial)
        return self._cut.scores_with(self._plain.weights_with(trial))
