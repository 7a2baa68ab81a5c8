"""Touched channels in front of another convolution: candidates that change one convolution, and what follows from it.

Through the function and the pooling behind it a touched channel becomes one input channel of the next convolution, and
that one gets what has changed, with S the touched channels and `*` a convolution of few channels instead of all:

    z' = z + W[:, S] * (a'_S - a_S)

It is one matrix product over shifted planes. From z' on the model continues as ever (`behind`).

Scales are those of the cut's route. What is rounded here and not there is a sum over z and a'_S - a_S. The first is the
original's. The second is as large as the touched weights make it, no function being steep, so its rounding grows as
theirs does; and both reach the scores through what every other rounding passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from arachne.backend import ModelBackend
from arachne.evaluate.fitness import FitnessInputs
from arachne.evaluate.plain import PlainEvaluator
from arachne.evaluate.routes.channels import ROWS, ChannelRoute, geometry_of, window_at
from arachne.evaluate.routes.continuation import Continuation, CutContinuation, DenseContinuation
from arachne.evaluate.routes.cut import CutRoute
from arachne.evaluate.routes.dense_tail import shared_product
from arachne.evaluate.routes.features import Features, Padding, find_features, readable
from arachne.evaluate.routes.grouped_cuts import GroupedCuts
from arachne.evaluate.routes.tail_layers import dense_layers
from arachne.values import Array, Geometry, LayerInfo, batches, take

TOGETHER = 1 << 21
"""How many numbers are computed at a time: what fits a processor's cache is read again for nothing."""


@dataclass(frozen=True, eq=False)
class OriginalPlanes:
    """What the original computes on the way, with the inputs on the last axis.

    Attributes:
        entering: What enters the channels that touched weights read, padded, `(channels, *padded, n)`.
        leaving: What leaves the touched channels, `(units, *positions, n)`.
        activated: What becomes of that, `(units, *pooled, n)`.
        second: What leaves the next convolution, `(out, *positions, n)`.
    """

    entering: Array
    leaving: Array
    activated: Array
    second: Array

    def reorder(self, places: Array) -> None:
        """Put the inputs into another order, given by where they lie now; in place, since this is much of memory."""
        for array in (self.entering, self.leaving, self.activated, self.second):
            for part in array:
                part[...] = np.take(part, places, axis=-1)


class NextConvolution:
    """What a change of some input channels changes in a convolution's outputs.

    Args:
        info: The convolution.
        weight: float32 `(out, in / groups, *kernel)`.
        channels: The input channels.
        positions: The spatial shape of the output.
        padding: Zeros that were put around its inputs before, which are padded once more by its own geometry.
    """

    def __init__(
        self, info: LayerInfo, weight: Array, channels: Array, positions: tuple[int, ...], padding: Padding
    ) -> None:
        geometry = geometry_of(info)
        outputs, per_group, *kernel = weight.shape
        groups = np.arange(outputs) // (outputs // geometry.groups)
        own = groups[:, None] == channels // per_group
        shared = np.where(own.reshape(*own.shape, *(1 for _ in kernel)), weight[:, channels % per_group], np.float32(0))
        self._reached = np.flatnonzero(own.any(axis=1))
        self._weight = np.ascontiguousarray(shared[self._reached].reshape(len(self._reached), -1))
        self._windows = [window_at(offsets, geometry, positions) for offsets in product(*map(range, kernel))]
        self._positions = positions
        self._padding = _added(padding, geometry)
        self.numbers = self._weight.shape[1] * int(np.prod(positions)) + outputs * int(np.prod(positions))
        """How many numbers one input takes."""

    def changes(self, new: Array, old: Array) -> Array:
        """Changes with zeros around them, `(channels, candidates, *padded, rows)`.

        Args:
            new: What enters now, `(channels, candidates, *positions, rows)`.
            old: What entered before, `(channels, *positions, rows)`.
        """
        channels, candidates, *spatial, rows = new.shape
        sizes = [first + size + last for size, (first, last) in zip(spatial, self._padding, strict=True)]
        changed = np.zeros((channels, candidates, *sizes, rows), np.float32)
        inner = [slice(first, first + size) for size, (first, _) in zip(spatial, self._padding, strict=True)]
        np.subtract(new, old[:, None], out=changed[(slice(None), slice(None), *inner)])
        return changed

    def of(self, changed: Array, outputs: Array) -> Array:
        """New outputs, from changes of one candidate `(channels, *padded, rows)` and the outputs before."""
        columns = np.empty((len(changed), len(self._windows), *self._positions, changed.shape[-1]), np.float32)
        for number, window in enumerate(self._windows):
            columns[:, number] = changed[(slice(None), *window)]
        moved = (self._weight @ columns.reshape(self._weight.shape[1], -1)).reshape(-1, *outputs.shape[1:])
        if len(moved) == len(outputs):
            moved += outputs
            return moved
        outputs = outputs.copy()
        outputs[self._reached] += moved
        return outputs


class NextConvolutionRoute(CutRoute):
    """Candidates that touch one convolution, followed by another.

    Args:
        plain: The reference.
        cuts: The model, held open.
        original: Scores of the original model, `(n, classes)`.
        channels: The route over the touched channels up to their own outputs.
        passage: What the original computes.
        features: What lies between the two convolutions.
        following: The second of them.
        behind: What lies behind it.
    """

    name = "channels, convolution"
    block = 20
    longest_run = 1024
    cheap = True

    def __init__(
        self,
        plain: PlainEvaluator,
        cuts: GroupedCuts,
        original: Array,
        channels: ChannelRoute,
        passage: OriginalPlanes,
        features: Features,
        following: NextConvolution,
        behind: Continuation,
    ) -> None:
        self.order = np.arange(len(plain.fitness_inputs.labels))
        self._touched = channels.touched
        self._planes = channels.planes.places(channels.touched.sources)
        self._passage = passage
        self._features = features
        self._following = following
        self.behind = behind
        self.in_numpy = behind.in_numpy
        super().__init__(plain, cuts, original)

    def reorder(self, order: Array) -> Array:
        place = np.empty_like(self.order)
        place[self.order] = np.arange(len(order))
        order = super().reorder(order)
        self._passage.reorder(place[order])
        return order

    def scores_of(self, trials: Array, rows: Array) -> Array:
        found = self.run(trials, slice(0, len(self.order)))
        scores = np.empty_like(found)
        scores[:, self.order] = found
        return np.asarray(scores[:, rows])

    def run(self, trials: Array, rows: slice) -> Array:
        change = self._touched.change(trials)
        step = max(1, self.behind.pairs // len(trials))
        found = [
            self._scores(change, slice(start, min(rows.stop, start + step)))
            for start in range(rows.start, rows.stop, step)
        ]
        return np.concatenate(found, axis=1)

    def _scores(self, change: Array, rows: slice) -> Array:
        """Scores of as many pairs as are continued with at once."""
        n = rows.stop - rows.start
        room = self.behind.room(len(change), n)
        leaving = int(np.prod(self._passage.leaving.shape[:-1])) * len(change)
        few = max(1, TOGETHER // max(self._following.numbers, leaving))
        for start in range(0, n, few):
            part = slice(start, min(n, start + few))
            here = slice(rows.start + part.start, rows.start + part.stop)
            changed, second = self._changed(change, here), np.ascontiguousarray(self._passage.second[..., here])
            for number in range(len(change)):
                room[..., number, part] = self.behind.made(self._following.of(changed[:, number], second))
        return self.behind.scores(room, self.order[rows])

    def _changed(self, change: Array, rows: slice) -> Array:
        """How what enters the next convolution has changed, `(units, candidates, *padded, rows)`."""
        leaving = np.ascontiguousarray(self._passage.leaving[..., rows])
        planes = np.ones((len(self._planes), *leaving.shape[1:]), np.float32)
        for plane, place in zip(planes, self._planes, strict=True):
            if place is not None:
                plane[...] = self._passage.entering[..., rows][place]
        new = shared_product(change, planes.reshape(len(planes), -1)).reshape(len(leaving), -1, *leaving.shape[1:])
        new += leaving[:, None]
        old = np.ascontiguousarray(self._passage.activated[..., rows])
        return self._following.changes(self._features.of(new, 2), old)


def find_channels_to_convolution(
    plain: PlainEvaluator, cuts: GroupedCuts, original: Array, channels: ChannelRoute, memory: int
) -> NextConvolutionRoute | None:
    """The route through the next convolution; None where it is not open.

    Args:
        plain: The reference; its candidates touch one convolution.
        cuts: The model, held open there.
        original: Scores of the original model, `(n, classes)`.
        channels: The route over the convolution's touched channels.
        memory: The budget in bytes.
    """
    backend, fitness_inputs, suspects = plain.backend, plain.fitness_inputs, plain.suspects
    names = [info.name for info in backend.layers]
    infos = backend.layers[names.index(cuts.layer) :]
    if len(infos) < 2 or infos[1].kind != "conv" or infos[1].uses != 1 or infos[1].geometry is None:
        return None
    if not readable(infos[0].followed_by):
        return None
    found = _gather(backend, fitness_inputs, infos, channels, memory // 2)
    if found is None:
        return None
    passage, features, after = found
    shape = passage.second.shape[:-1]
    links = dense_layers(backend, suspects, names.index(cuts.layer) + 2)
    behind: Continuation
    if links is not None and after is not None and len(links[-1].weight) == original.shape[1]:
        behind = DenseContinuation(after, shape, links)
    else:
        cuts = GroupedCuts(
            backend, fitness_inputs, suspects, np.arange(len(fitness_inputs)), memory // 4, [infos[1].name]
        )
        if not cuts.continues:
            return None
        behind = CutContinuation(cuts, shape)
    weight = backend.get_weights(infos[1].name)["weight"].astype(np.float32)
    following = NextConvolution(infos[1], weight, channels.touched.units, shape[1:], features.padding)
    return NextConvolutionRoute(plain, cuts, original, channels, passage, features, following, behind)


def _gather(
    backend: ModelBackend,
    fitness_inputs: FitnessInputs,
    infos: Sequence[LayerInfo],
    channels: ChannelRoute,
    memory: int,
) -> tuple[OriginalPlanes, Features, Features | None] | None:
    """What the original computes, what lies between the convolutions, and what behind them if dense layers follow.

    None where it does not fit, or the way is another one.
    """
    units, n = channels.touched.units, len(fitness_inputs)
    features: Features | None = None
    after: Features | None = None
    second = np.empty(0, np.float32)
    leaving = np.empty(0, np.float32)
    for rows in batches(n, ROWS):
        inputs = take(fitness_inputs.inputs, rows)
        (use,) = backend.activations(inputs, infos[1].name)
        outputs = channels.outputs(np.arange(rows.start, rows.stop))
        if features is None:
            features = find_features(infos[0].followed_by, outputs, use.entering["weight"])
            one = outputs[0, units].nbytes * 2 + use.leaving[0].nbytes + channels.planes.entering[0].nbytes
            if features is None or n * one > memory:
                return None
            if len(infos) > 2 and infos[2].kind == "dense":
                (dense, *_) = backend.activations(inputs, infos[2].name)
                after = find_features(infos[1].followed_by, use.leaving, dense.entering["weight"])
            second = np.empty((*use.leaving.shape[1:], n), np.float32)
            leaving = np.empty((len(units), *outputs.shape[2:], n), np.float32)
        second[..., rows] = np.moveaxis(use.leaving, 0, -1)
        leaving[..., rows] = np.moveaxis(outputs[:, units], 0, -1)
    if features is None:
        return None
    entering = np.ascontiguousarray(np.moveaxis(channels.planes.entering, 0, -1))
    activated = np.array(features.of(leaving, 1), order="C")  # a copy even where nothing lies between
    return OriginalPlanes(entering, leaving, activated, second), features, after


def _added(padding: Padding, geometry: Geometry) -> Padding:
    """Zeros around zeros."""
    outer = padding or ((0, 0),) * len(geometry.padding)
    return tuple((a + c, b + d) for (a, b), (c, d) in zip(outer, geometry.padding, strict=True))
