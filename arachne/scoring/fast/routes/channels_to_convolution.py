"""From touched channels into the next convolution: candidates that change one convolution which another one follows.

Through the functions and the pooling between the two, a touched channel becomes one input channel of the next
convolution. With S the touched channels and `*` a convolution, the next convolution's outputs z become

    z' = z + W[:, S] * (a'_S - a_S)

which is one matrix product over shifted planes, of few channels instead of all. The model continues from z' as usual
(`continuation`).

Scales are the same as on the cut's route. The only additional roundings are those of the sum above. Its first part is
the original's; its second grows with the touched weights, because no function in between is steep
(`functions.STEEPEST`). Both pass through the same layers as every other rounding on their way to the scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from arachne.model.backend import ModelBackend
from arachne.model.values import Array, Geometry, LayerInfo, batches, take
from arachne.scoring.dense_layers import block_size, dense_layers
from arachne.scoring.evaluator import PlainEvaluator
from arachne.scoring.fast.routes.channels import INPUTS_AT_ONCE, TouchedChannels, geometry_of, window_at
from arachne.scoring.fast.routes.continuation import Continuation, CutContinuation, DenseContinuation
from arachne.scoring.fast.routes.cut import CutRoute
from arachne.scoring.fast.routes.dense_tail import shared_product
from arachne.scoring.fast.routes.features import Features, Padding, find_features, readable
from arachne.scoring.fast.routes.grouped_cuts import GroupedCuts
from arachne.scoring.fitness import FitnessInputs

NUMBERS_AT_ONCE = 1 << 21
"""The number of values computed at a time, so that they stay in the processor's cache."""


@dataclass(frozen=True, eq=False)
class OriginalPlanes:
    """The original activations of both convolutions, with the inputs on the last axis.

    Attributes:
        entering: The input channels of the touched weights, padded, `(channels, *padded, n)`.
        leaving: The outputs of the touched channels, `(units, *positions, n)`.
        activated: These outputs after functions and pooling, `(units, *pooled, n)`.
        second: The outputs of the next convolution, `(out, *positions, n)`.
    """

    entering: Array
    leaving: Array
    activated: Array
    second: Array

    def reorder(self, order: Array) -> None:
        """Reorder the inputs, given by their present positions; in place, because copies would be large."""
        for array in (self.entering, self.leaving, self.activated, self.second):
            for part in array:
                part[...] = np.take(part, order, axis=-1)


class NextConvolution:
    """Computes a convolution's outputs after a change of some of its input channels.

    Args:
        info: The convolution.
        weight: float32 `(out, in / groups, *kernel)`.
        channels: The input channels that change.
        positions: The spatial shape of the output.
        padding: Zeros that a step before it puts around its inputs; its own geometry adds more.
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
        self._padding = _add_padding(padding, geometry)
        self.numbers = self._weight.shape[1] * int(np.prod(positions)) + outputs * int(np.prod(positions))
        """The number of values computed for one input."""

    def changes(self, new: Array, old: Array) -> Array:
        """Return new - old, padded with zeros: `(channels, candidates, *padded, rows)`.

        Args:
            new: The changed inputs, `(channels, candidates, *positions, rows)`.
            old: The original inputs, `(channels, *positions, rows)`.
        """
        channels, candidates, *spatial, rows = new.shape
        sizes = [first + size + last for size, (first, last) in zip(spatial, self._padding, strict=True)]
        changed = np.zeros((channels, candidates, *sizes, rows), np.float32)
        inner = [slice(first, first + size) for size, (first, _) in zip(spatial, self._padding, strict=True)]
        np.subtract(new, old[:, None], out=changed[(slice(None), slice(None), *inner)])
        return changed

    def of(self, changed: Array, outputs: Array) -> Array:
        """Return new outputs, from one candidate's changes `(channels, *padded, rows)` and the original outputs."""
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
    """Candidates that touch one convolution which another one follows.

    Args:
        plain: The plain evaluator.
        cuts: Cuts of the model.
        original: Scores of the original model, `(n, classes)`.
        channels: The first convolution's touched channels.
        planes: The original activations.
        features: The steps between the two convolutions.
        following: The second convolution.
        continuation: The steps from its outputs to the scores.
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
        channels: TouchedChannels,
        planes: OriginalPlanes,
        features: Features,
        following: NextConvolution,
        continuation: Continuation,
    ) -> None:
        self.order = np.arange(len(plain.fitness_inputs.labels))
        self._touched = channels.touched
        self.block = block_size(self.block, [channels.touched])
        self._windows = channels.planes.windows(channels.touched.sources)
        self._planes = planes
        self._features = features
        self._following = following
        self.continuation = continuation
        self.in_numpy = continuation.in_numpy
        super().__init__(plain, cuts, original)

    def reorder(self, order: Array) -> Array:
        position = np.empty_like(self.order)
        position[self.order] = np.arange(len(order))
        order = super().reorder(order)
        self._planes.reorder(position[order])
        return order

    def scores_of(self, trials: Array, rows: Array) -> Array:
        found = self.run(trials, slice(0, len(self.order)))
        scores = np.empty_like(found)
        scores[:, self.order] = found
        return np.asarray(scores[:, rows])

    def run(self, trials: Array, rows: slice) -> Array:
        change = self._touched.change(trials)
        step = max(1, self.continuation.pairs // len(trials))
        found = [
            self._scores(change, slice(start, min(rows.stop, start + step)))
            for start in range(rows.start, rows.stop, step)
        ]
        return np.concatenate(found, axis=1)

    def _scores(self, change: Array, rows: slice) -> Array:
        """Score a run of inputs, few enough to be continued together."""
        n = rows.stop - rows.start
        room = self.continuation.allocate(len(change), n)
        leaving = int(np.prod(self._planes.leaving.shape[:-1])) * len(change)
        few = max(1, NUMBERS_AT_ONCE // max(self._following.numbers, leaving))
        for start in range(0, n, few):
            part = slice(start, min(n, start + few))
            here = slice(rows.start + part.start, rows.start + part.stop)
            changed, second = self._input_changes(change, here), np.ascontiguousarray(self._planes.second[..., here])
            for number in range(len(change)):
                room[..., number, part] = self.continuation.next_inputs(self._following.of(changed[:, number], second))
        return self.continuation.scores(room, self.order[rows])

    def _input_changes(self, change: Array, rows: slice) -> Array:
        """Return the changes of the next convolution's inputs, `(units, candidates, *padded, rows)`."""
        leaving = np.ascontiguousarray(self._planes.leaving[..., rows])
        planes = np.ones((len(self._windows), *leaving.shape[1:]), np.float32)
        for plane, window in zip(planes, self._windows, strict=True):
            if window is not None:
                plane[...] = self._planes.entering[..., rows][window]
        new = shared_product(change, planes.reshape(len(planes), -1)).reshape(len(leaving), -1, *leaving.shape[1:])
        new += leaving[:, None]
        old = np.ascontiguousarray(self._planes.activated[..., rows])
        return self._following.changes(self._features.of(new, 2), old)


def find_channels_to_convolution(
    plain: PlainEvaluator, cuts: GroupedCuts, original: Array, channels: TouchedChannels, memory: int
) -> NextConvolutionRoute | None:
    """Make the route through the next convolution; None if it does not support the model.

    Args:
        plain: The plain evaluator; its candidates touch one convolution.
        cuts: Cuts of the model at this convolution.
        original: Scores of the original model, `(n, classes)`.
        channels: The convolution's touched channels.
        memory: The budget in bytes.
    """
    backend, fitness_inputs, suspects = plain.backend, plain.fitness_inputs, plain.suspects
    names = [info.name for info in backend.layers]
    infos = backend.layers[names.index(cuts.layer) :]
    if len(infos) < 2 or infos[1].kind != "conv" or infos[1].uses != 1 or infos[1].geometry is None:
        return None
    if not readable(infos[0].followed_by):
        return None
    found = _gather(backend, fitness_inputs, infos, cuts, channels, memory // 2)
    if found is None:
        return None
    planes, features, after = found
    shape = planes.second.shape[:-1]
    layers = dense_layers(backend, suspects, names.index(cuts.layer) + 2)
    continuation: Continuation
    if layers is not None and after is not None and len(layers[-1].weight) == original.shape[1]:
        continuation = DenseContinuation(after, shape, layers)
    else:
        cuts = GroupedCuts(
            backend, fitness_inputs, suspects, np.arange(len(fitness_inputs)), memory // 4, [infos[1].name]
        )
        if not cuts.continues:
            return None
        continuation = CutContinuation(cuts, shape)
    weight = backend.get_weights(infos[1].name)["weight"].astype(np.float32)
    following = NextConvolution(infos[1], weight, channels.touched.units, shape[1:], features.padding)
    return NextConvolutionRoute(plain, cuts, original, channels, planes, features, following, continuation)


def _gather(
    backend: ModelBackend,
    fitness_inputs: FitnessInputs,
    infos: Sequence[LayerInfo],
    cuts: GroupedCuts,
    channels: TouchedChannels,
    memory: int,
) -> tuple[OriginalPlanes, Features, Features | None] | None:
    """Compute the original activations; find the steps between the convolutions, and after them if dense layers follow.

    None if the activations do not fit in memory, or the steps are unknown.
    """
    units, n = channels.touched.units, len(fitness_inputs)
    features: Features | None = None
    after: Features | None = None
    second = np.empty(0, np.float32)
    leaving = np.empty(0, np.float32)
    for rows in batches(n, INPUTS_AT_ONCE):
        inputs = take(fitness_inputs.inputs, rows)
        (use,) = backend.activations(inputs, infos[1].name)
        outputs = cuts.outputs(np.arange(rows.start, rows.stop))
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


def _add_padding(padding: Padding, geometry: Geometry) -> Padding:
    """Add up two paddings, the outer one from a geometry."""
    outer = padding or ((0, 0),) * len(geometry.padding)
    return tuple((a + c, b + d) for (a, b), (c, d) in zip(outer, geometry.padding, strict=True))
