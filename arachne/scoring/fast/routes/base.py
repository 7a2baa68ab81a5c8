"""A route: one way from candidate patches to class scores, faster than a full forward pass.

A route scores blocks of candidates on runs of inputs, in the order of inputs it was last given. Its scores may differ
from the plain evaluator's by rounding; `BlockScores.scale` is the size of the rounded numbers, and `fast.error_band`
measures how far apart the two get.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from arachne.model.values import Array

ROUNDING = float(np.finfo(np.float32).eps)

MAX_SCALE = 1e30
"""The largest scale that is trusted: near the end of float32 one computation overflows before the other."""

LabelRuns = list[tuple[int, slice]]
"""Runs of neighbouring rows of one class: the class, and the rows."""


class BlockScores(ABC):
    """The margins and losses of a block of candidates on a run of inputs."""

    margins: Array
    """Score of the true class minus the best other one, float32 `(candidates, rows)`: below 0 is wrong."""

    scale: Array
    """The size of the numbers behind the scores, `(candidates, rows)`: rounding errors are a few `eps * scale`."""

    @abstractmethod
    def losses(self, pairs: Array, rows: Array) -> Array:
        """Return the cross-entropy of some pairs of candidate and row.

        Args:
            pairs: The pairs, as positions in `margins.ravel()`.
            rows: The row of each pair.
        """


class AllClassScores(BlockScores):
    """Margins and losses from the scores of all classes.

    Args:
        scores: float32 `(classes, candidates, rows)`; overwritten.
        labels: Runs of one label among the rows.
        scale: See `BlockScores.scale`.
    """

    def __init__(self, scores: Array, labels: LabelRuns, scale: Array) -> None:
        self.scale = scale
        classes, n, rows = scores.shape
        own = np.empty((n, rows), scores.dtype)
        for label, run in labels:
            own[:, run] = scores[label, :, run]
            scores[label, :, run] = -np.inf
        self._own, self._others = own.ravel(), scores.reshape(classes, n * rows)
        self._best = self._others.max(axis=0)
        self.margins = (self._own - self._best).reshape(n, rows)

    def losses(self, pairs: Array, rows: Array) -> Array:
        own = self._own[pairs]
        highest = np.maximum(own, self._best[pairs])
        own -= highest
        loss: Array = np.log(np.exp(np.take(self._others, pairs, axis=1) - highest).sum(axis=0) + np.exp(own)) - own
        return loss


class Labels:
    """The true classes of a route's inputs, in the order of the route.

    Args:
        classes: `(n,)`.
    """

    def __init__(self, classes: Array) -> None:
        self._classes = classes
        self._runs: dict[tuple[int, int], LabelRuns] = {}

    def __len__(self) -> int:
        return len(self._classes)

    def label_runs(self, rows: slice) -> LabelRuns:
        """Return the runs of one class among some rows, cached; few if the rows are sorted by class."""
        start, stop, _ = rows.indices(len(self._classes))
        if (start, stop) not in self._runs:
            labels = self._classes[start:stop]
            edges = [0, *(np.flatnonzero(np.diff(labels)) + 1).tolist(), len(labels)]
            self._runs[start, stop] = [(int(labels[a]), slice(a, b)) for a, b in pairwise(edges) if b > a]
        return self._runs[start, stop]


class Block(ABC):
    """Some candidates on a route."""

    @abstractmethod
    def scores_of_run(self, rows: slice) -> BlockScores:
        """Score a run of inputs, given by its position in the route's order."""

    @abstractmethod
    def keep(self, which: Array) -> None:
        """Drop all candidates but these, given by their position in the block."""


class Route(ABC):
    """One way from candidates to scores."""

    name: str

    first_run: int
    """Length of the first run of inputs; each further run is twice as long."""

    longest_run: int
    """The length at which the doubling ends."""

    block: int
    """The number of candidates scored together."""

    in_numpy: bool
    """Whether it is all NumPy, without calls of a backend."""

    cheap = True
    """Whether scoring all inputs is faster than computing reference scores behind a cut."""

    worst_case: bool = True
    """Whether its scales are worst cases, which `calibrate` then reduces to measured ones."""

    def runs(self, n: int) -> Iterator[slice]:
        """Yield the runs into which `n` inputs are divided."""
        start, length = 0, self.first_run
        while start < n:
            yield slice(start, min(n, start + length))
            start, length = start + length, min(2 * length, self.longest_run)

    def by_label(self, order: Array, labels: Array) -> Array:
        """Sort every run of an order by class, so that the rows of a class are neighbours."""
        order = order.copy()
        for run in self.runs(len(order)):
            order[run] = order[run][np.argsort(labels[order[run]], kind="stable")]
        return order

    def calibrate(self, differences: Array, original: Array) -> None:
        """Measure how much of the worst case occurs, before the scales are used.

        Args:
            differences: The largest difference of each input's scores over some candidates, `(n,)`.
            original: Scores of the original model, `(n, classes)`.
        """
        return  # scales that come from scores are no worst cases

    @abstractmethod
    def start(self, trials: Array) -> Block:
        """Begin a block of candidates, float64 `(candidates, k)`."""

    @abstractmethod
    def reorder(self, order: Array) -> Array:
        """Use about this order of the inputs from now on; return the exact order."""

    @abstractmethod
    def scores(self, trial: Array) -> tuple[Array, Array]:
        """Return a candidate's scores `(n, classes)` of all inputs in their original order, and their scales `(n,)`."""
