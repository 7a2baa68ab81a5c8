"""A route: one way from candidate patches to class scores, faster than a full forward pass.

A route answers for blocks of candidates and runs of inputs, in the order of inputs it was last given. What it says may
differ from the plain evaluator's scores by rounding; `Judgement.scale` tells how large the rounded numbers are, and
`arachne.evaluate.band` measures how far apart the two get.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from arachne.values import Array

LabelRuns = list[tuple[int, slice]]
"""A class, and neighbouring rows that belong to it, again and again."""


class Judgement(ABC):
    """What a block of candidates makes of a run of inputs."""

    margins: Array
    """Score of the true class minus the best other one, float32 `(candidates, rows)`: below 0 is wrong."""

    scale: Array
    """How large the numbers behind the scores get, `(candidates, rows)`: rounding is some `eps` of this."""

    @abstractmethod
    def losses(self, pairs: Array, rows: Array) -> Array:
        """Cross-entropy of some pairs of candidate and row, given as elements of `margins` flattened, and the rows."""


class FullJudgement(Judgement):
    """A judgement from the scores of all classes.

    Args:
        scores: float32 `(classes, candidates, rows)`; overwritten.
        labels: Runs of one label among the rows.
        scale: As the attribute.
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
    """The true classes of a route's inputs, in the order in which they are met.

    Args:
        classes: `(n,)`.
    """

    def __init__(self, classes: Array) -> None:
        self._classes = classes
        self._runs: dict[tuple[int, int], LabelRuns] = {}

    def __len__(self) -> int:
        return len(self._classes)

    def runs(self, rows: slice) -> LabelRuns:
        """Neighbouring rows of one class; few where the rows are sorted by class. Found once."""
        start, stop, _ = rows.indices(len(self._classes))
        if (start, stop) not in self._runs:
            labels = self._classes[start:stop]
            edges = [0, *(np.flatnonzero(np.diff(labels)) + 1).tolist(), len(labels)]
            self._runs[start, stop] = [(int(labels[a]), slice(a, b)) for a, b in pairwise(edges) if b > a]
        return self._runs[start, stop]


class Block(ABC):
    """Some candidates on a route."""

    @abstractmethod
    def judge(self, rows: slice) -> Judgement:
        """What the candidates make of a run of inputs, given by its place in the route's order."""

    @abstractmethod
    def keep(self, which: Array) -> None:
        """Go on with these candidates only, by their place in the block."""


class Route(ABC):
    """One way from candidates to scores."""

    name: str

    first_run: int
    """How many inputs the first run has; each further run is twice as long."""

    longest_run: int
    """Where the doubling ends."""

    block: int
    """How many candidates are judged together."""

    in_numpy: bool
    """Whether all of it is NumPy's own work, and not a backend's."""

    cheap = True
    """Whether all inputs take it less time than they take the plain evaluator behind a cut."""

    worst_case: bool = True
    """Whether its scales have a worst case in them, of which `calibrate` learns how much is used up."""

    def runs(self, n: int) -> Iterator[slice]:
        """The runs in which inputs are met."""
        start, length = 0, self.first_run
        while start < n:
            yield slice(start, min(n, start + length))
            start, length = start + length, min(2 * length, self.longest_run)

    def by_label(self, order: Array, labels: Array) -> Array:
        """The order with every run sorted by class, so that what is done class by class is done to neighbours."""
        order = order.copy()
        for run in self.runs(len(order)):
            order[run] = order[run][np.argsort(labels[order[run]], kind="stable")]
        return order

    def calibrate(self, differences: Array, original: Array) -> None:
        """Learn how much of the worst case is used up, before anything rests on the scales.

        Args:
            differences: The largest difference of each input's scores over some candidates, `(n,)`.
            original: Scores of the original model, `(n, classes)`.
        """
        return  # scales that come from scores have no worst case in them

    @abstractmethod
    def start(self, trials: Array) -> Block:
        """Open a block of candidates, float64 `(candidates, k)`."""

    @abstractmethod
    def reorder(self, order: Array) -> Array:
        """Go through the inputs in about this order from now on; returns the order it will be."""

    @abstractmethod
    def scores(self, trial: Array) -> tuple[Array, Array]:
        """One candidate's class scores for all inputs, `(n, classes)` in their original order, and their scale."""
