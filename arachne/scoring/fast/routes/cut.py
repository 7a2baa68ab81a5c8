"""The route through a backend's cut, candidate by candidate; it supports every model."""

from __future__ import annotations

import time
from contextlib import nullcontext

import numpy as np

from arachne.model.backend import ModelBackend
from arachne.model.values import Array
from arachne.scoring.evaluator import PlainEvaluator
from arachne.scoring.fast.routes.base import AllClassScores, Block, BlockScores, Labels, Route
from arachne.scoring.fast.routes.grouped_cuts import GroupedCuts
from arachne.scoring.threads import one_thread
from arachne.weights.selection import Selection

MAX_GROWTH = 1e12
"""A candidate whose rounding may grow beyond this factor may overflow before the scores, whatever these are."""

RECURRENT_POWER = 4
"""A recurrent layer rounds its rounded state again at each step; growth over this many steps is allowed for."""


class RoundingGrowth:
    """The growth of a candidate's rounding errors in the touched layers, relative to the original's.

    Scores do not show it: after a saturating function, or where large numbers cancel, they stay small. The inputs of a
    touched layer come from original weights or from another touched layer, so rounding grows with the largest touched
    weight: growth = product over layers of max(1, |w| / usual |w|) ** power.
    """

    def __init__(self, backend: ModelBackend, suspects: Selection) -> None:
        self._usual = suspects.magnitudes
        self._parts = [(suspects.in_layer(layer), _power(backend, layer)) for layer in suspects.layers]

    def of(self, trials: Array) -> Array:
        """Return the growth, float32 `(candidates,)`, at least 1; infinite for a candidate that may overflow."""
        share = np.abs(trials) / self._usual
        growth = np.ones(len(trials))
        for numbers, power in self._parts:
            growth *= np.maximum(1.0, share[:, numbers].max(axis=1)) ** power
        growth[~(growth < MAX_GROWTH)] = np.inf
        return growth.astype(np.float32)


def _power(backend: ModelBackend, layer: str) -> int:
    info = backend.info(layer)
    return max(info.uses, RECURRENT_POWER if info.kind == "recurrent" else 1)


class CutRoute(Route):
    """Runs each candidate behind the cut, with whole parameters.

    Args:
        plain: The plain evaluator, with the inputs and the suspects.
        cuts: Cuts of the model.
        original: Scores of the original model, `(n, classes)`.
    """

    name = "cut"
    first_run = 64
    longest_run = 2048
    block = 1  # each candidate is one call of the backend, so scoring several together gains nothing
    in_numpy = False
    cheap = False
    worst_case = False

    def __init__(self, plain: PlainEvaluator, cuts: GroupedCuts, original: Array) -> None:
        self._growth = RoundingGrowth(plain.backend, plain.suspects)
        self._labels = plain.fitness_inputs.labels
        self._cuts = cuts
        self._weights_with = plain.weights_with
        largest = np.abs(original).max(axis=1)
        self.usual = np.maximum(largest, np.float32(max(1e-6, float(np.mean(largest)))))
        self.reorder(np.arange(len(self._labels)))

    def start(self, trials: Array) -> Block:
        return _CutBlock(self, trials)

    def reorder(self, order: Array) -> Array:
        # Inputs of one group stay together, so that a cut that does not fit in memory is made once per generation.
        order = order[np.argsort(self._cuts.group_of[order], kind="stable")]
        self.order = self.by_label(order, self._labels) if self._cuts.whole is not None else order
        self.labels = Labels(self._labels[self.order])
        return self.order

    def scores(self, trial: Array) -> tuple[Array, Array]:
        rows = np.arange(len(self._labels))
        scores = self.scores_of(trial[None], rows)
        return scores[0], self.scale(trial[None], scores, rows)[0]

    def seconds(self, trials: Array) -> float:
        """Time some candidates on the first run of inputs, in seconds: the best of two runs after a warm-up."""
        rows = slice(0, min(self.first_run, len(self.order)))
        found: list[float] = []
        with np.errstate(all="ignore"), one_thread() if self.in_numpy else nullcontext():
            for _ in range(3):
                start = time.perf_counter()
                self.run(trials, rows)
                found.append(time.perf_counter() - start)
        return min(found[1:])

    def run(self, trials: Array, rows: slice) -> Array:
        """Return scores `(candidates, rows, classes)` of a run of inputs, by its position in the route's order."""
        return self.scores_of(trials, self.order[rows])

    def scores_of(self, trials: Array, rows: Array) -> Array:
        """Return scores `(candidates, rows, classes)` of inputs by number."""
        return np.stack([self._cuts.scores_with(self._weights_with(trial), rows) for trial in trials])

    def scale(self, trials: Array, scores: Array, rows: Array) -> Array:
        """Return scales `(candidates, rows)`: the larger of the largest score and its usual value, times the growth."""
        largest = np.maximum(np.abs(scores).max(axis=2), self.usual[rows])
        return np.asarray(largest * self._growth.of(trials)[:, None])


class _CutBlock(Block):
    def __init__(self, route: CutRoute, trials: Array) -> None:
        self._route = route
        self._trials = trials

    def keep(self, which: Array) -> None:
        self._trials = self._trials[which]

    def scores_of_run(self, rows: slice) -> BlockScores:
        scores = self._route.run(self._trials, rows)
        scale = self._route.scale(self._trials, scores, self._route.order[rows])
        return AllClassScores(
            np.ascontiguousarray(scores.transpose(2, 0, 1)), self._route.labels.label_runs(rows), scale
        )
