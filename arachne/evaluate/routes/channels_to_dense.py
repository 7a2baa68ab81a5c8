"""Touched channels in front of a dense tail: a convolution, pooling, and dense layers up to the scores, all in NumPy.

A touched channel of the convolution moves its own features and no others. Through the function and the pooling behind
it they are computed anew, and the first dense layer gets what they changed as in `dense`:

    z' = z + W[:, features of the touched channels] (a' - a) + ΔW a'

So of that layer, often the widest of the model, only the columns of touched channels are computed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from arachne.backend import ModelBackend
from arachne.evaluate.fitness import FitnessInputs
from arachne.evaluate.routes.base import Labels
from arachne.evaluate.routes.channels import Planes, touched_channels
from arachne.evaluate.routes.dense_tail import DenseRoute, TailBlock, shared_product
from arachne.evaluate.routes.features import Features, find_features
from arachne.evaluate.routes.tail_layers import DenseLayer, OriginalTail, dense_layers, first_touched, look_behind
from arachne.suspects import Suspects
from arachne.values import Array, batches, take

ROWS = 256
"""How many inputs are looked at together while the route is prepared."""


class ChannelsToDenseRoute(DenseRoute):
    """Candidates that touch a convolution right before a dense tail, and maybe the tail."""

    name = "channels, dense tail"
    first_run = 64
    longest_run = 1024
    block = 50

    def __init__(
        self, fitness_inputs: FitnessInputs, links: Sequence[DenseLayer], base: OriginalTail, features: Features
    ) -> None:
        super().__init__(fitness_inputs, links, base)
        self._features = features

    def block_of(self, base: OriginalTail, labels: Labels, trials: Array) -> TailBlock:
        return ChannelsToDenseBlock(self._links, base, labels, trials, self._features)


class ChannelsToDenseBlock(TailBlock):
    """Candidates on that route."""

    def __init__(
        self, links: Sequence[DenseLayer], base: OriginalTail, labels: Labels, trials: Array, features: Features
    ) -> None:
        self._made = features
        super().__init__(links, base, labels, trials)

    def _find_features(self) -> Array:
        first = self._links[0]
        positions = len(self._base.activated) // len(first.touched.units)
        return self._made.columns(first.touched.units, len(first.weight), positions).ravel()

    def _moved(self) -> Array:
        moved = np.abs(self._changes[0]) @ self._base.peaks[0]
        return np.repeat(moved, len(self._features) // moved.shape[1], axis=1)

    def _activated(self, rows: slice) -> Array:
        entering, leaving = self._base.entering[..., rows], self._base.leaving[..., rows]
        new = shared_product(self._changes[0], entering.reshape(len(entering), -1))
        units, candidates = new.shape[:2]
        new = new.reshape(units, candidates, *leaving.shape[1:])
        new += leaving[:, None]
        made = self._made.of(new, 2)
        flat = made.reshape(units, candidates, -1, made.shape[-1]).transpose(0, 2, 1, 3)
        return flat.reshape(-1, candidates, made.shape[-1])


def find_channels_to_dense(
    backend: ModelBackend, fitness_inputs: FitnessInputs, suspects: Suspects, memory: int
) -> ChannelsToDenseRoute | None:
    """The route over a convolution's channels and the dense tail behind it; None where it is not open."""
    first = first_touched(backend, suspects)
    info = backend.layers[first]
    if info.kind != "conv" or info.uses != 1 or info.geometry is None or set(info.parameters) - {"weight", "bias"}:
        return None
    behind = dense_layers(backend, suspects, first + 1)
    if behind is None:
        return None
    channels, touched = touched_channels(info, suspects)
    weight = backend.get_weights(info.name)["weight"].astype(np.float32)
    links = [DenseLayer(info, weight, np.zeros((len(weight), 1), np.float32), (), touched), *behind]
    found = _gather(backend, fitness_inputs, links, channels, memory // 2)
    return None if found is None else ChannelsToDenseRoute(fitness_inputs, links, *found)


def _gather(
    backend: ModelBackend, fitness_inputs: FitnessInputs, links: Sequence[DenseLayer], channels: Array, memory: int
) -> tuple[OriginalTail, Features] | None:
    """What the original computes on the way; None where it does not fit, or the way is another one."""
    names = [link.info.name for link in links[:2]]
    features: Features | None = None
    parts: list[list[Array]] = []
    worst: list[Array] = []
    peaks: list[Array] = []
    for rows in batches(len(fitness_inputs), ROWS):
        inputs = take(fitness_inputs.inputs, rows)
        conv, dense = (backend.activations(inputs, name)[0] for name in names)
        a = dense.entering["weight"].astype(np.float32)
        if features is None:
            told = links[0].info.followed_by
            features = find_features(told, conv.leaving, a) if a.ndim == 2 and conv.leaving.ndim > 2 else None
            if features is None:
                return None
        kept, errors, tops = _look(links, channels, conv.entering["weight"], conv.leaving, a, features)
        parts.append([*kept, errors[-1].max(axis=0)])
        if 2 * sum(array.nbytes for array in parts[0]) / parts[0][-1].shape[-1] * len(fitness_inputs) > memory:
            return None
        found = [error.max(axis=1) for error in errors]
        worst = [np.maximum(*pair) for pair in zip(worst, found, strict=True)] if worst else found
        peaks = [np.maximum(*pair) for pair in zip(peaks, tops, strict=True)] if peaks else tops
    if features is None:
        return None
    entering, leaving, sources, second, rounding = (np.concatenate(p, axis=-1) for p in zip(*parts, strict=True))
    activated = features.of(leaving, 1).reshape(-1, leaving.shape[-1])
    return OriginalTail(entering, leaving, activated, sources, second, rounding, tuple(worst), tuple(peaks)), features


def _look(
    links: Sequence[DenseLayer], channels: Array, entering: Array, leaving: Array, a: Array, features: Features
) -> tuple[list[Array], list[Array], list[Array]]:
    """For some inputs, what `OriginalTail` keeps of the convolution and the layer behind it, and roundings and peaks of all."""
    touched, n = links[0].touched, len(leaving)
    planes = Planes.padded(links[0].info, channels, entering, leaving.shape[2:])
    sources = planes.of(np.arange(n), touched.sources).reshape(len(touched.sources), n, *leaving.shape[2:])
    outputs = np.moveaxis(leaving[:, touched.units].astype(np.float32), 0, -1)
    # What was rounded is taken to be as large as the outputs are: how many roundings that makes is measured anyway.
    sizes = features.of(np.abs(outputs), 1).reshape(-1, n)
    positions = a.shape[1] // leaving.shape[1]
    columns = features.columns(touched.units, leaving.shape[1], positions).ravel()
    kept, errors, peaks = look_behind(links[1:], np.ascontiguousarray(a.T), columns, np.abs(sizes))
    top = np.abs(sources).reshape(len(sources), -1).max(axis=1)
    return [np.moveaxis(sources, 1, -1), outputs, *kept], [np.abs(sizes), *errors], [top, *peaks]
