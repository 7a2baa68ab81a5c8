"""The routes through a backend's cut: for everything that is not a dense tail."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from arachne.backend import Weights
from arachne.evaluate.base import Stake
from arachne.evaluate.cuts import Cuts
from arachne.evaluate.routes import Block, FullJudgement, Judgement, Route
from arachne.values import Array

WeightsWith = Callable[[Array], Weights]


class CutRoute(Route):
    """Candidate by candidate, with whole parameters behind the cut. Works wherever there is a backend.

    Args:
        stake: The inputs.
        cuts: The model, held open.
        weights_with: The whole parameters of a candidate.
        original: Scores of the original model, `(n, classes)`.
    """

    name = "cut"
    first_run = 64
    longest_run = 2048
    block = 1  # each candidate is a call of its own, so nothing is gained by judging several together
    in_numpy = False

    def __init__(self, stake: Stake, cuts: Cuts, weights_with: WeightsWith, original: Array) -> None:
        self._labels = stake.labels
        self._cuts = cuts
        self._weights_with = weights_with
        largest = np.abs(original).max(axis=1)
        self.usual = np.maximum(largest, np.float32(max(1e-6, float(np.mean(largest)))))
        self.reorder(np.arange(len(stake.labels)))

    def start(self, trials: Array) -> Block:
        return _CutBlock(self, trials)

    def reorder(self, order: Array) -> Array:
        # Groups stay together, so that a cut that does not fit beside the others is made once per generation.
        order = order[np.argsort(self._cuts.group_of[order], kind="stable")]
        self.order = self.by_label(order, self._labels) if self._cuts.whole is not None else order
        self.labels = self._labels[self.order]
        return self.order

    def scores(self, trial: Array) -> tuple[Array, Array]:
        rows = np.arange(len(self._labels))
        scores = self.scores_of(trial[None], rows)
        return scores[0], self.scale(scores, rows)[0]

    def scores_of(self, trials: Array, rows: Array) -> Array:
        """Scores `(candidates, rows, classes)`, for row numbers of the stake."""
        return np.stack([self._cuts.scores_with(self._weights_with(trial), rows) for trial in trials])

    def scale(self, scores: Array, rows: Array) -> Array:
        """`(candidates, rows)`: nothing is known of what lies behind the cut, but it rounds what it gives out."""
        return np.asarray(np.maximum(np.abs(scores).max(axis=2), self.usual[rows]))


class _CutBlock(Block):
    def __init__(self, route: CutRoute, trials: Array) -> None:
        self._route = route
        self._trials = trials

    def keep(self, which: Array) -> None:
        self._trials = self._trials[which]

    def judge(self, rows: slice) -> Judgement:
        chosen = self._route.order[rows]
        scores = self._route.scores_of(self._trials, chosen)
        scale = self._route.scale(scores, chosen)
        return FullJudgement(np.ascontiguousarray(scores.transpose(2, 0, 1)), self._route.labels[rows], scale)
