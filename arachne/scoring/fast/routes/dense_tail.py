"""Dense tails in NumPy: candidates that touch only the dense layers at the end of a model.

With S the touched units of the first touched layer, a candidate changes z_S by ΔW x and nothing in front of it.
After that layer everything follows from the original activations and from that change:

    next layer        z' = z + W[:, S] (f(z'_S) - f(z_S)) + ΔW a'
    further layers    z' = W a' + b + ΔW a'

Arrays have units first, then candidates, then inputs: a layer is then one matrix product for the whole block, and a
maximum over classes runs along whole rows of memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from arachne.model.backend import ModelBackend
from arachne.model.values import Array
from arachne.scoring.dense_layers import ChangedWeights, DenseLayer, block_size
from arachne.scoring.fast.routes.base import MAX_SCALE, ROUNDING, AllClassScores, Block, BlockScores, Labels, Route
from arachne.scoring.fast.routes.tail_layers import OriginalTail
from arachne.scoring.fitness import FitnessInputs
from arachne.scoring.functions import STEEPEST, apply

NUMBERS_AT_ONCE = 1 << 20
"""The number of outputs of one layer computed at a time, so that they stay in the processor's cache."""


MIN_WORST_CASE_SHARE = 1 / 64
"""The smallest share of the worst-case rounding that `calibrate` assumes, however little of it was measured."""


class DenseRoute(Route):
    """Candidates on a dense tail."""

    name = "dense tail"
    first_run = 192
    longest_run = 2048
    block = 100
    in_numpy = True

    def __init__(self, fitness_inputs: FitnessInputs, layers: Sequence[DenseLayer], tail: OriginalTail) -> None:
        self._layers = layers
        self.block = block_size(self.block, [layer.touched for layer in layers])
        self.classes = len(layers[-1].weight)
        self._whole = self._tail = tail
        self._labels = fitness_inputs.labels
        self._ordered = Labels(fitness_inputs.labels)
        self._untouched = (
            UntouchedClasses.of(layers[0].touched, tail, fitness_inputs.labels) if len(layers) == 1 else None
        )
        self._last = self._untouched

    @classmethod
    def of(
        cls, backend: ModelBackend, fitness_inputs: FitnessInputs, layers: Sequence[DenseLayer], memory: int
    ) -> DenseRoute | None:
        """Make the route over a tail; None if a layer takes no vectors, or it needs more bytes than `memory`."""
        tail = OriginalTail.of(backend, fitness_inputs, layers, memory)
        return None if tail is None else cls(fitness_inputs, layers, tail)

    def calibrate(self, differences: Array, original: Array) -> None:
        found = differences / (ROUNDING * self._whole.rounding)
        share = np.float32(np.clip(np.nanmax(found, initial=0.0), MIN_WORST_CASE_SHARE, 1.0))
        rounding = np.maximum(share * self._whole.rounding, np.abs(original).max(axis=1))
        self._whole = self._tail = replace(self._whole, rounding=rounding.astype(np.float32))

    def start(self, trials: Array) -> Block:
        if self._last is not None:
            return LastLayerBlock(self._layers[0].touched, self._last, self._tail, self._ordered, trials)
        return self.block_of(self._tail, self._ordered, trials)

    def reorder(self, order: Array) -> Array:
        order = self.by_label(order, self._labels)
        self._tail = self._whole.take(order)
        self._ordered = Labels(self._labels[order])
        self._last = None if self._untouched is None else self._untouched.take(order)
        return order

    def scores(self, trial: Array) -> tuple[Array, Array]:
        block = self.block_of(self._whole, Labels(self._labels), trial[None])
        return block.all_scores(slice(None))[:, 0].T, block.scale(slice(None))[0]

    def block_of(self, tail: OriginalTail, labels: Labels, trials: Array) -> TailBlock:
        """Make a block that computes all classes."""
        return TailBlock(self._layers, tail, labels, trials)


class TailBlock(Block):
    """Candidates on a tail of any depth."""

    def __init__(self, layers: Sequence[DenseLayer], tail: OriginalTail, labels: Labels, trials: Array) -> None:
        self._layers = layers
        self._tail = tail
        self._labels = labels
        self._changes = [layer.touched.change(trials) for layer in layers]
        self._features = self._find_features()
        self._position = {feature: number for number, feature in enumerate(self._features.tolist())}
        self._added = added_rounding(self._movements(), self._features, layers, tail, self._changes)
        self._widest = max([len(self._features), *(len(layer.weight) for layer in layers[1:])])

    def keep(self, which: Array) -> None:
        self._changes = [change[which] for change in self._changes]
        self._added = self._added[which]

    def scores_of_run(self, rows: slice) -> BlockScores:
        return AllClassScores(self.all_scores(rows), self._labels.label_runs(rows), self.scale(rows))

    def all_scores(self, rows: slice) -> Array:
        """Return scores `(classes, candidates, rows)`, computed for some of the rows at a time."""
        size = max(16, NUMBERS_AT_ONCE // (self._widest * max(1, len(self._added))))
        start, stop, _ = rows.indices(len(self._labels))
        parts = [self.scores(slice(s, min(stop, s + size))) for s in range(start, stop, size)]
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=2)

    def scale(self, rows: slice) -> Array:
        """Return scales `(candidates, rows)`."""
        scale: Array = self._added[:, None] + self._tail.rounding[rows]
        return scale

    def scores(self, rows: slice) -> Array:
        """Return scores `(classes, candidates, rows)`."""
        tail, first = self._tail, self._layers[0]
        if tail.second is None or tail.sources is None:
            scores = np.repeat(tail.leaving[:, None, rows], len(self._added), axis=1)
            scores[first.touched.units] += shared_product(self._changes[0], tail.entering[:, rows])
            return scores
        activated = self._activations(rows)
        layer = self._layers[1]
        z = _product(layer.weight[:, self._features], activated - tail.activated[:, None, rows])
        z += tail.second[:, None, rows]
        if len(layer.touched):
            entering = np.repeat(tail.sources[:, None, rows], z.shape[1], axis=1)
            for number, feature in enumerate(layer.touched.sources.tolist()):
                if feature in self._position:
                    entering[number] = activated[self._position[feature]]
            _add_own_products(z, layer.touched, self._changes[1], entering)
        for before, layer, change in zip(self._layers[1:], self._layers[2:], self._changes[2:], strict=False):
            a = apply(before.functions, z)
            z = _product(layer.weight, a) + layer.bias[:, None]
            if len(layer.touched):
                _add_own_products(z, layer.touched, change, layer.touched.entering(a))
        return z

    def _find_features(self) -> Array:
        """Return the second layer's inputs that the first layer's touched units change."""
        return self._layers[0].touched.units

    def _movements(self) -> Array:
        """Return how far each candidate can move each of these inputs, `(candidates, features)`."""
        return np.asarray(np.abs(self._changes[0]) @ self._tail.peaks[0])

    def _activations(self, rows: slice) -> Array:
        """Return these inputs under each candidate, `(features, candidates, rows)`."""
        new = shared_product(self._changes[0], self._tail.entering[:, rows])
        new += self._tail.leaving[:, None, rows]
        return apply(self._layers[0].functions, new)


@dataclass(frozen=True, eq=False)
class UntouchedClasses:
    """The contribution of the last layer's untouched classes to margins and losses, input by input.

    Attributes:
        touched_scores: Original scores of the touched classes, `(touched, n)`.
        own: Original score of the true class, `(n,)`.
        best: Largest score among untouched classes other than the true one, `(n,)`.
        logsum: log(sum(exp(score))) over these classes, `(n,)`.
    """

    touched_scores: Array
    own: Array
    best: Array
    logsum: Array

    @classmethod
    def of(cls, touched: ChangedWeights, tail: OriginalTail, labels: Array) -> UntouchedClasses:
        """Compute them from the original scores of all classes."""
        scores, rows = tail.leaving, np.arange(len(labels))
        others = scores.copy()
        others[touched.units] = -np.inf
        others[labels, rows] = -np.inf
        best = others.max(axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            logsum = np.log(np.exp(others - best).sum(axis=0)) + best
        logsum[np.isnan(logsum)] = -np.inf
        return cls(scores[touched.units], scores[labels, rows], best, logsum)

    def take(self, order: Array) -> UntouchedClasses:
        """Reorder the inputs."""
        scores = np.take(self.touched_scores, order, axis=1)
        return UntouchedClasses(scores, self.own[order], self.best[order], self.logsum[order])


class LastLayerBlock(Block):
    """Candidates that only touch the last layer: only the touched classes are computed."""

    def __init__(
        self, touched: ChangedWeights, untouched: UntouchedClasses, tail: OriginalTail, labels: Labels, trials: Array
    ) -> None:
        self._classes = {unit: number for number, unit in enumerate(touched.units.tolist())}
        self._untouched = untouched
        self._tail = tail
        self._labels = labels
        self._change = touched.change(trials)
        self._added = (np.abs(self._change) @ tail.peaks[0]).max(axis=1)

    def keep(self, which: Array) -> None:
        self._change = self._change[which]
        self._added = self._added[which]

    def scores_of_run(self, rows: slice) -> BlockScores:
        scores = shared_product(self._change, self._tail.entering[:, rows])
        scores += self._untouched.touched_scores[:, None, rows]
        own = np.repeat(self._untouched.own[None, rows], scores.shape[1], axis=0)
        for label, run in self._labels.label_runs(rows):
            if label in self._classes:  # the true class is not one of the others
                own[:, run] = scores[self._classes[label], :, run]
                scores[self._classes[label], :, run] = -np.inf
        scale = self._added[:, None] + self._tail.rounding[rows]
        return _LastLayerScores(own, scores, self._untouched.best[rows], self._untouched.logsum[rows], scale)


class _LastLayerScores(BlockScores):
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
        untouched = self._logsum[rows]
        highest = np.maximum(np.maximum(untouched, own), touched.max(axis=0))
        touched -= highest
        sums = np.exp(touched, out=touched).sum(axis=0) + np.exp(untouched - highest)
        own -= highest
        loss: Array = np.log(sums + np.exp(own)) - own
        return loss


def added_rounding(
    moved: Array, features: Array, layers: Sequence[DenseLayer], tail: OriginalTail, changes: Sequence[Array]
) -> Array:
    """Bound the additional rounding of a candidate at the scores, compared with the original's, `(candidates,)`.

    Two bounds are propagated along the tail: how far each unit can move, and what that adds to its rounding. Rounding
    errors of different units are independent, so they add up as the root of the sum of their squares. If a unit may
    overflow the result is infinite, even if nothing of that unit reaches the scores.

    Args:
        moved: How far each candidate can move each feature, `(candidates, features)`.
        features: The numbers of these features among the second layer's inputs.
        layers: The layers.
        tail: The original activations.
        changes: ΔW of every layer.
    """
    error = moved
    largest = moved.max(axis=1)
    for number, layer in enumerate(layers[1:], start=1):
        weight = STEEPEST * np.abs(layer.weight[:, features] if number == 1 else layer.weight).T
        squares = weight * weight
        spread, rounded = moved @ weight, np.sqrt((moved * moved) @ squares) + np.sqrt((error * error) @ squares)
        if len(layer.touched):
            change, units = np.abs(changes[number]), layer.touched.units
            # The input of a touched weight has moved and has errors, at most those of the worst unit.
            farthest = STEEPEST * moved.max(axis=1, keepdims=True)
            worst = STEEPEST * (error + tail.roundings[number - 1]).max(axis=1, keepdims=True)
            own = change @ tail.peaks[number] + change.sum(axis=2) * farthest
            spread[:, units] += own
            rounded[:, units] += own + change.sum(axis=2) * worst
        moved, error = spread, rounded
        largest = np.maximum(largest, moved.max(axis=1))
    return np.where(largest < MAX_SCALE, error.max(axis=1), np.float32(np.inf))


def shared_product(change: Array, entering: Array) -> Array:
    """Multiply every ΔW `(candidates, units, sources)` with one `(sources, rows)`: `(units, candidates, rows)`."""
    candidates, units, sources = change.shape
    stacked = change.transpose(1, 0, 2).reshape(units * candidates, sources)
    return (stacked @ entering).reshape(units, candidates, entering.shape[1])


def _product(weight: Array, entering: Array) -> Array:
    """Multiply one weight `(out, in)` with every candidate's `(in, candidates, rows)`: `(out, candidates, rows)`."""
    if len(entering) == 1:  # several times as fast as a matrix product
        return np.asarray(weight[:, :, None] * entering)
    return (weight @ entering.reshape(len(entering), -1)).reshape(len(weight), *entering.shape[1:])


def _add_own_products(z: Array, touched: ChangedWeights, change: Array, entering: Array) -> None:
    """Add each candidate's ΔW `(candidates, units, sources)` times its own `(sources, candidates, rows)`."""
    z[touched.units] += (change @ entering.transpose(1, 0, 2)).transpose(1, 0, 2)
