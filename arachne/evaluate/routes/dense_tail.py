"""Dense tails in NumPy: candidates that touch only the dense layers at the end of a model.

With S the touched units of the first touched layer, a candidate changes z_S by ΔW x and nothing before it. Continuation that
layer everything follows from what the original model computed and from that change:

    next layer        z' = z + W[:, S] (f(z'_S) - f(z_S)) + ΔW a'
    further layers    z' = W a' + b + ΔW a'

Arrays have units first, then candidates, then inputs: a layer is then one matrix product for the whole block, and a
maximum over classes runs along whole rows of memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from arachne.backend import ModelBackend
from arachne.evaluate.fitness import FitnessInputs
from arachne.evaluate.routes.base import LARGEST, ROUNDING, Block, FullJudgement, Judgement, Labels, Route
from arachne.evaluate.routes.functions import STEEPEST, apply
from arachne.evaluate.routes.tail_layers import DenseLayer, OriginalTail, Touched
from arachne.values import Array

TOGETHER = 1 << 20
"""How many numbers of one layer are computed at a time: what fits a processor's cache is read again for nothing."""


SMALLEST = 1 / 64
"""Magnitudes add up to much more than they are rounded by together, but by no more than this is allowed for."""


class DenseRoute(Route):
    """Candidates on a dense tail."""

    name = "dense tail"
    first_run = 192
    longest_run = 2048
    block = 100
    in_numpy = True

    def __init__(self, fitness_inputs: FitnessInputs, links: Sequence[DenseLayer], base: OriginalTail) -> None:
        self._links = links
        self.classes = len(links[-1].weight)
        self._whole = self._base = base
        self._labels = fitness_inputs.labels
        self._ordered = Labels(fitness_inputs.labels)
        self._standing = UntouchedClasses.of(links[0].touched, base, fitness_inputs.labels) if len(links) == 1 else None
        self._last = self._standing

    @classmethod
    def of(
        cls, backend: ModelBackend, fitness_inputs: FitnessInputs, links: Sequence[DenseLayer], memory: int
    ) -> DenseRoute | None:
        """The route over a tail; None where the tail is not what it seemed, or does not fit `memory`, in bytes."""
        base = OriginalTail.of(backend, fitness_inputs, links, memory)
        return None if base is None else cls(fitness_inputs, links, base)

    def calibrate(self, differences: Array, original: Array) -> None:
        found = differences / (ROUNDING * self._whole.rounding)
        share = np.float32(np.clip(np.nanmax(found, initial=0.0), SMALLEST, 1.0))
        rounding = np.maximum(share * self._whole.rounding, np.abs(original).max(axis=1))
        self._whole = self._base = replace(self._whole, rounding=rounding.astype(np.float32))

    def start(self, trials: Array) -> Block:
        if self._last is not None:
            return LastLayerBlock(self._links[0].touched, self._last, self._base, self._ordered, trials)
        return self.block_of(self._base, self._ordered, trials)

    def reorder(self, order: Array) -> Array:
        order = self.by_label(order, self._labels)
        self._base = self._whole.take(order)
        self._ordered = Labels(self._labels[order])
        self._last = None if self._standing is None else self._standing.take(order)
        return order

    def scores(self, trial: Array) -> tuple[Array, Array]:
        block = self.block_of(self._whole, Labels(self._labels), trial[None])
        return block.all_scores(slice(None))[:, 0].T, block.scale(slice(None))[0]

    def block_of(self, base: OriginalTail, labels: Labels, trials: Array) -> TailBlock:
        """A block that computes all classes."""
        return TailBlock(self._links, base, labels, trials)


class TailBlock(Block):
    """Candidates on a tail of any depth."""

    def __init__(self, links: Sequence[DenseLayer], base: OriginalTail, labels: Labels, trials: Array) -> None:
        self._links = links
        self._base = base
        self._labels = labels
        self._changes = [link.touched.change(trials) for link in links]
        self._features = self._find_features()
        self._place = {feature: number for number, feature in enumerate(self._features.tolist())}
        self._added = added_rounding(self._moved(), self._features, links, base, self._changes)
        self._widest = max([len(self._features), *(len(link.weight) for link in links[1:])])

    def keep(self, which: Array) -> None:
        self._changes = [change[which] for change in self._changes]
        self._added = self._added[which]

    def judge(self, rows: slice) -> Judgement:
        return FullJudgement(self.all_scores(rows), self._labels.runs(rows), self.scale(rows))

    def all_scores(self, rows: slice) -> Array:
        """As `scores`, some of the rows at a time."""
        size = max(16, TOGETHER // (self._widest * max(1, len(self._added))))
        start, stop, _ = rows.indices(len(self._labels))
        parts = [self.scores(slice(s, min(stop, s + size))) for s in range(start, stop, size)]
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=2)

    def scale(self, rows: slice) -> Array:
        """`(candidates, rows)`."""
        scale: Array = self._added[:, None] + self._base.rounding[rows]
        return scale

    def scores(self, rows: slice) -> Array:
        """Scores `(classes, candidates, rows)`."""
        base, first = self._base, self._links[0]
        if base.second is None or base.sources is None:
            scores = np.repeat(base.leaving[:, None, rows], len(self._added), axis=1)
            scores[first.touched.units] += shared_product(self._changes[0], base.entering[:, rows])
            return scores
        activated = self._activated(rows)
        link = self._links[1]
        z = _product(link.weight[:, self._features], activated - base.activated[:, None, rows])
        z += base.second[:, None, rows]
        if len(link.touched):
            entering = np.repeat(base.sources[:, None, rows], z.shape[1], axis=1)
            for number, feature in enumerate(link.touched.sources.tolist()):
                if feature in self._place:
                    entering[number] = activated[self._place[feature]]
            _add_own_products(z, link.touched, self._changes[1], entering)
        for before, link, change in zip(self._links[1:], self._links[2:], self._changes[2:], strict=False):
            a = apply(before.functions, z)
            z = _product(link.weight, a) + link.bias[:, None]
            if len(link.touched):
                _add_own_products(z, link.touched, change, link.touched.entering(a))
        return z

    def _find_features(self) -> Array:
        """Which of the second layer's inputs the first layer's touched units move."""
        return self._links[0].touched.units

    def _moved(self) -> Array:
        """How far the candidates can move each of them, `(candidates, features)`."""
        return np.asarray(np.abs(self._changes[0]) @ self._base.peaks[0])

    def _activated(self, rows: slice) -> Array:
        """What they become, `(features, candidates, rows)`."""
        new = shared_product(self._changes[0], self._base.entering[:, rows])
        new += self._base.leaving[:, None, rows]
        return apply(self._links[0].functions, new)


@dataclass(frozen=True, eq=False)
class UntouchedClasses:
    """What the untouched classes of the last layer contribute to a judgement, input by input.

    Attributes:
        touched_scores: Original scores of the touched classes, `(touched, n)`.
        own: Score of the true class, as the original has it, `(n,)`.
        best: Best untouched score of another class, `(n,)`.
        logsum: Logarithm of the summed exponentials of all untouched scores of other classes, `(n,)`.
    """

    touched_scores: Array
    own: Array
    best: Array
    logsum: Array

    @classmethod
    def of(cls, touched: Touched, base: OriginalTail, labels: Array) -> UntouchedClasses:
        """From the original scores of all classes."""
        scores, rows = base.leaving, np.arange(len(labels))
        others = scores.copy()
        others[touched.units] = -np.inf
        others[labels, rows] = -np.inf
        best = others.max(axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            logsum = np.log(np.exp(others - best).sum(axis=0)) + best
        logsum[np.isnan(logsum)] = -np.inf
        return cls(scores[touched.units], scores[labels, rows], best, logsum)

    def take(self, order: Array) -> UntouchedClasses:
        """The same with the inputs in another order."""
        scores = np.take(self.touched_scores, order, axis=1)
        return UntouchedClasses(scores, self.own[order], self.best[order], self.logsum[order])


class LastLayerBlock(Block):
    """Candidates that touch the last layer alone: only the touched classes are computed."""

    def __init__(
        self, touched: Touched, standing: UntouchedClasses, base: OriginalTail, labels: Labels, trials: Array
    ) -> None:
        self._classes = {unit: number for number, unit in enumerate(touched.units.tolist())}
        self._standing = standing
        self._base = base
        self._labels = labels
        self._change = touched.change(trials)
        self._added = (np.abs(self._change) @ base.peaks[0]).max(axis=1)

    def keep(self, which: Array) -> None:
        self._change = self._change[which]
        self._added = self._added[which]

    def judge(self, rows: slice) -> Judgement:
        scores = shared_product(self._change, self._base.entering[:, rows])
        scores += self._standing.touched_scores[:, None, rows]
        own = np.repeat(self._standing.own[None, rows], scores.shape[1], axis=0)
        for label, run in self._labels.runs(rows):
            if label in self._classes:  # its own score is not one of the others
                own[:, run] = scores[self._classes[label], :, run]
                scores[self._classes[label], :, run] = -np.inf
        scale = self._added[:, None] + self._base.rounding[rows]
        return _LastLayerJudgement(own, scores, self._standing.best[rows], self._standing.logsum[rows], scale)


class _LastLayerJudgement(Judgement):
    def __init__(self, own: Array, touched: Array, best: Array, logsum: Array, scale: Array) -> None:
        self.scale = scale
        self._own = own
        self._touched = touched
        self._logsum = logsum
        highest = np.maximum(touched[0], best)
        for scores in touched[1:]:
            np.maximum(highest, scores, out=highest)
        self.margins = np.subtract(own, highest, out=highest)

    def losses(self, pairs: Array, rows: Array) -> Array:
        own = self._own.ravel()[pairs]
        touched = np.take(self._touched.reshape(len(self._touched), -1), pairs, axis=1)
        standing = self._logsum[rows]
        highest = np.maximum(np.maximum(standing, own), touched.max(axis=0))
        touched -= highest
        sums = np.exp(touched, out=touched).sum(axis=0) + np.exp(standing - highest)
        own -= highest
        loss: Array = np.log(sums + np.exp(own)) - own
        return loss


def added_rounding(
    moved: Array, features: Array, links: Sequence[DenseLayer], base: OriginalTail, changes: Sequence[Array]
) -> Array:
    """How much larger than the original's a candidate's rounding can get at the scores, `(candidates,)`.

    Bounds of how far each unit is moved are carried along the tail, and with them what that adds to its rounding.
    Roundings of different units have nothing to do with each other, so they add up as the root of their squares.
    Where a unit may overflow nothing is certain, even if nothing of it reaches the scores.

    Args:
        moved: How far the candidates can move each feature, `(candidates, features)`.
        features: Which of the second layer's inputs they are.
        links: The layers.
        base: What the original computes there.
        changes: ΔW of every layer.
    """
    error = moved
    largest = moved.max(axis=1)
    for number, link in enumerate(links[1:], start=1):
        weight = STEEPEST * np.abs(link.weight[:, features] if number == 1 else link.weight).T
        squares = weight * weight
        spread, rounded = moved @ weight, np.sqrt((moved * moved) @ squares) + np.sqrt((error * error) @ squares)
        if len(link.touched):
            change, units = np.abs(changes[number]), link.touched.units
            # What enters a touched weight has moved and is rounded itself, by no more than the worst unit before it.
            farthest = STEEPEST * moved.max(axis=1, keepdims=True)
            worst = STEEPEST * (error + base.roundings[number - 1]).max(axis=1, keepdims=True)
            own = change @ base.peaks[number] + change.sum(axis=2) * farthest
            spread[:, units] += own
            rounded[:, units] += own + change.sum(axis=2) * worst
        moved, error = spread, rounded
        largest = np.maximum(largest, moved.max(axis=1))
    return np.where(largest < LARGEST, error.max(axis=1), np.float32(np.inf))


def shared_product(change: Array, entering: Array) -> Array:
    """Every candidate's ΔW `(candidates, units, sources)` times one `(sources, rows)`: `(units, candidates, rows)`."""
    candidates, units, sources = change.shape
    stacked = change.transpose(1, 0, 2).reshape(units * candidates, sources)
    return (stacked @ entering).reshape(units, candidates, entering.shape[1])


def _product(weight: Array, entering: Array) -> Array:
    """One weight `(out, in)` times every candidate's `(in, candidates, rows)`: `(out, candidates, rows)`."""
    if len(entering) == 1:  # a matrix product takes several times as long over it
        return np.asarray(weight[:, :, None] * entering)
    return (weight @ entering.reshape(len(entering), -1)).reshape(len(weight), *entering.shape[1:])


def _add_own_products(z: Array, touched: Touched, change: Array, entering: Array) -> None:
    """Add each candidate's ΔW `(candidates, units, sources)` times its own `(sources, candidates, rows)`."""
    z[touched.units] += (change @ entering.transpose(1, 0, 2)).transpose(1, 0, 2)
