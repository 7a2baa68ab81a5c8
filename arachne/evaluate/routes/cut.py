"""The route through a backend's cut, candidate by candidate: open for every model."""

from __future__ import annotations

import time
from contextlib import nullcontext

import numpy as np

from arachne.backend import ModelBackend
from arachne.evaluate.plain import PlainEvaluator
from arachne.evaluate.routes.base import Block, FullJudgement, Judgement, Labels, Route
from arachne.evaluate.routes.grouped_cuts import GroupedCuts
from arachne.evaluate.routes.threads import one_thread
from arachne.suspects import Suspects
from arachne.values import Array

LARGEST_GROWTH = 1e12
"""A candidate whose rounding may grow further than this may overflow on the way, whatever its scores are."""

RECURRENT_POWER = 4
"""A recurrent layer rounds again what it rounded in the step before; growth over this many steps is allowed for."""


class RoundingGrowth:
    """How much larger than the original's a candidate's rounding errors can get in the touched layers.

    Scores do not tell: behind a saturating function, or where large numbers cancel, they stay small. What enters a
    touched layer comes from the original's weights or from another touched layer, so rounding grows as the largest
    touched weight does: growth = product over layers of max(1, |w| / usual |w|) ** power.
    """

    def __init__(self, backend: ModelBackend, suspects: Suspects) -> None:
        self._usual = suspects.magnitudes
        layers = dict.fromkeys(address.layer for address in suspects.addresses)
        self._parts = [
            ([n for n, address in enumerate(suspects.addresses) if address.layer == layer], _power(backend, layer))
            for layer in layers
        ]

    def of(self, trials: Array) -> Array:
        """Float32 `(candidates,)`, from 1 up; infinite for a candidate that may overflow."""
        share = np.abs(trials) / self._usual
        growth = np.ones(len(trials))
        for numbers, power in self._parts:
            growth *= np.maximum(1.0, share[:, numbers].max(axis=1)) ** power
        growth[~(growth < LARGEST_GROWTH)] = np.inf
        return growth.astype(np.float32)


def _power(backend: ModelBackend, layer: str) -> int:
    info = backend.info(layer)
    return max(info.uses, RECURRENT_POWER if info.kind == "recurrent" else 1)


class CutRoute(Route):
    """Runs each candidate behind the cut, with whole parameters.

    Args:
        plain: The plain evaluator, which knows the inputs and what candidates change.
        cuts: The model, held open.
        original: Scores of the original model, `(n, classes)`.
    """

    name = "cut"
    first_run = 64
    longest_run = 2048
    block = 1  # each candidate is one call of the backend, so nothing is gained by judging several together
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
        """Seconds that some candidates take on the first run of inputs: the best of two times, after one to warm up."""
        rows = slice(0, min(self.first_run, len(self.order)))
        found: list[float] = []
        with np.errstate(all="ignore"), one_thread() if self.in_numpy else nullcontext():
            for _ in range(3):
                start = time.perf_counter()
                self.run(trials, rows)
                found.append(time.perf_counter() - start)
        return min(found[1:])

    def run(self, trials: Array, rows: slice) -> Array:
        """Scores `(candidates, rows, classes)` of a run of inputs, given by its place in the route's order."""
        return self.scores_of(trials, self.order[rows])

    def scores_of(self, trials: Array, rows: Array) -> Array:
        """Scores `(candidates, rows, classes)`, for numbers of inputs."""
        return np.stack([self._cuts.scores_with(self._weights_with(trial), rows) for trial in trials])

    def scale(self, trials: Array, scores: Array, rows: Array) -> Array:
        """Scales `(candidates, rows)`: the largest score, here or usually, times the growth of the touched weights."""
        largest = np.maximum(np.abs(scores).max(axis=2), self.usual[rows])
        return np.asarray(largest * self._growth.of(trials)[:, None])


class _CutBlock(Block):
    def __init__(self, route: CutRoute, trials: Array) -> None:
        self._route = route
        self._trials = trials

    def keep(self, which: Array) -> None:
        self._trials = self._trials[which]

    def judge(self, rows: slice) -> Judgement:
        scores = self._route.run(self._trials, rows)
        scale = self._route.scale(self._trials, scores, self._route.order[rows])
        return FullJudgement(np.ascontiguousarray(scores.transpose(2, 0, 1)), self._route.labels.runs(rows), scale)
