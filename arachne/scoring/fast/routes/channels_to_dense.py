"""From touched channels into a dense tail: a convolution, pooling, and dense layers up to the scores, all in NumPy.

A touched channel of the convolution changes its own features and no others. These are computed again through the
functions and the pooling behind it, and the first dense layer changes as in `dense_tail`:

    z' = z + W[:, features of the touched channels] (a' - a) + ΔW a'

So of that layer, often the widest of the model, only the columns of touched channels are multiplied.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from arachne.model.backend import ModelBackend
from arachne.model.values import Array, batches, take
from arachne.scoring.dense_layers import DenseLayer, dense_layers, first_touched
from arachne.scoring.fast.routes.base import Labels
from arachne.scoring.fast.routes.channels import Planes, touched_channels
from arachne.scoring.fast.routes.dense_tail import DenseRoute, TailBlock, shared_product
from arachne.scoring.fast.routes.features import Features, find_features
from arachne.scoring.fast.routes.tail_layers import OriginalTail, error_of_following_layers
from arachne.scoring.fitness import FitnessInputs
from arachne.weights.selection import Selection

INPUTS_AT_ONCE = 256
"""The number of inputs run at a time while the route is prepared."""


class ChannelsToDenseRoute(DenseRoute):
    """Candidates that touch a convolution right before a dense tail, and maybe the tail."""

    name = "channels, dense tail"
    first_run = 64
    longest_run = 1024
    block = 50

    def __init__(
        self, fitness_inputs: FitnessInputs, layers: Sequence[DenseLayer], tail: OriginalTail, features: Features
    ) -> None:
        super().__init__(fitness_inputs, layers, tail)
        self._features = features

    def block_of(self, tail: OriginalTail, labels: Labels, trials: Array) -> TailBlock:
        return ChannelsToDenseBlock(self._layers, tail, labels, trials, self._features)


class ChannelsToDenseBlock(TailBlock):
    """A block of candidates on that route."""

    def __init__(
        self, layers: Sequence[DenseLayer], tail: OriginalTail, labels: Labels, trials: Array, features: Features
    ) -> None:
        self._made = features
        super().__init__(layers, tail, labels, trials)

    def _find_features(self) -> Array:
        first = self._layers[0]
        positions = len(self._tail.activated) // len(first.touched.units)
        return self._made.columns(first.touched.units, len(first.weight), positions).ravel()

    def _movements(self) -> Array:
        moved = np.abs(self._changes[0]) @ self._tail.peaks[0]
        return np.repeat(moved, len(self._features) // moved.shape[1], axis=1)

    def _activations(self, rows: slice) -> Array:
        entering, leaving = self._tail.entering[..., rows], self._tail.leaving[..., rows]
        new = shared_product(self._changes[0], entering.reshape(len(entering), -1))
        units, candidates = new.shape[:2]
        new = new.reshape(units, candidates, *leaving.shape[1:])
        new += leaving[:, None]
        made = self._made.of(new, 2)
        flat = made.reshape(units, candidates, -1, made.shape[-1]).transpose(0, 2, 1, 3)
        return flat.reshape(-1, candidates, made.shape[-1])


def find_channels_to_dense(
    backend: ModelBackend, fitness_inputs: FitnessInputs, suspects: Selection, memory: int
) -> ChannelsToDenseRoute | None:
    """Make the route over a convolution and the dense tail behind it; None if the model has other layers there."""
    first = first_touched(backend, suspects)
    info = backend.layers[first]
    if info.kind != "conv" or info.uses != 1 or info.geometry is None or set(info.parameters) - {"weight", "bias"}:
        return None
    behind = dense_layers(backend, suspects, first + 1)
    if behind is None:
        return None
    channels, touched = touched_channels(info, suspects)
    weight = backend.get_weights(info.name)["weight"].astype(np.float32)
    layers = [DenseLayer(info, weight, np.zeros((len(weight), 1), np.float32), (), touched), *behind]
    found = _gather(backend, fitness_inputs, layers, channels, memory // 2)
    return None if found is None else ChannelsToDenseRoute(fitness_inputs, layers, *found)


def _gather(
    backend: ModelBackend, fitness_inputs: FitnessInputs, layers: Sequence[DenseLayer], channels: Array, memory: int
) -> tuple[OriginalTail, Features] | None:
    """Compute the original activations; None if they do not fit in memory, or the steps after them are unknown."""
    names = [layer.info.name for layer in layers[:2]]
    features: Features | None = None
    parts: list[list[Array]] = []
    worst: list[Array] = []
    peaks: list[Array] = []
    for rows in batches(len(fitness_inputs), INPUTS_AT_ONCE):
        inputs = take(fitness_inputs.inputs, rows)
        conv, dense = (backend.activations(inputs, name)[0] for name in names)
        a = dense.entering["weight"].astype(np.float32)
        if features is None:
            steps = layers[0].info.followed_by
            features = find_features(steps, conv.leaving, a) if a.ndim == 2 and conv.leaving.ndim > 2 else None
            if features is None:
                return None
        kept, errors, tops = _measure_batch(layers, channels, conv.entering["weight"], conv.leaving, a, features)
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


def _measure_batch(
    layers: Sequence[DenseLayer], channels: Array, entering: Array, leaving: Array, a: Array, features: Features
) -> tuple[list[Array], list[Array], list[Array]]:
    """Compute `OriginalTail`'s arrays of the first two layers for some inputs, and all rounding errors and peaks."""
    touched, n = layers[0].touched, len(leaving)
    planes = Planes.with_padding(layers[0].info, channels, entering, leaving.shape[2:])
    sources = planes.of(np.arange(n), touched.sources).reshape(len(touched.sources), n, *leaving.shape[2:])
    outputs = np.moveaxis(leaving[:, touched.units].astype(np.float32), 0, -1)
    # Rounding errors are taken to be proportional to the outputs; the error band measures the factor anyway.
    sizes = features.of(np.abs(outputs), 1).reshape(-1, n)
    positions = a.shape[1] // leaving.shape[1]
    columns = features.columns(touched.units, leaving.shape[1], positions).ravel()
    kept, errors, peaks = error_of_following_layers(layers[1:], np.ascontiguousarray(a.T), columns, np.abs(sizes))
    top = np.abs(sources).reshape(len(sources), -1).max(axis=1)
    return [np.moveaxis(sources, 1, -1), outputs, *kept], [np.abs(sizes), *errors], [top, *peaks]
