"""Touched channels: candidates that change some weights of one convolution and nothing else.

A weight of a kernel is multiplied with one plane (channel) of the input, shifted by the weight's position in the
kernel. So a candidate changes a channel of the output by a sum of few planes. `channels_to_dense` and
`channels_to_convolution` continue from the changed outputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from arachne.model.backend import ModelBackend
from arachne.model.lazy import is_plain
from arachne.model.values import Array, Geometry, Inputs, LayerInfo, batches, take
from arachne.scoring.dense_layers import BIAS, ChangedWeights
from arachne.scoring.evaluator import PlainEvaluator
from arachne.scoring.fast.routes.grouped_cuts import GroupedCuts
from arachne.scoring.fitness import FitnessInputs
from arachne.weights.selection import Selection

INPUTS_AT_ONCE = 256
"""The number of inputs run at a time while the planes are collected."""


@dataclass(frozen=True, eq=False)
class TouchedChannels:
    """The touched weights of one convolution, where candidates touch nothing else.

    Attributes:
        planes: The inputs of these weights.
        touched: The weights.
    """

    planes: Planes
    touched: ChangedWeights


class Planes:
    """The input planes of a convolution's touched weights.

    Args:
        info: The convolution.
        channels: The input channels that are kept, ascending.
        entering: Their values, padded, `(n, channels, ...)`.
        positions: The spatial shape of the output.
    """

    def __init__(self, info: LayerInfo, channels: Array, entering: Array, positions: tuple[int, ...]) -> None:
        self._info = info
        self._channels = channels
        self.entering = entering
        self.positions = positions

    @classmethod
    def with_padding(cls, info: LayerInfo, channels: Array, entering: Array, positions: tuple[int, ...]) -> Planes:
        """Make planes from the values of all channels, without padding."""
        around = [(0, 0), (0, 0), *geometry_of(info).padding]
        return cls(info, channels, np.pad(entering[:, channels].astype(np.float32), around), positions)

    def of(self, rows: Array, sources: Array) -> Array:
        """Return the planes of some inputs, `(sources, rows * positions)`."""
        found = np.ones((len(sources), len(rows), *self.positions), np.float32)
        chosen = self.entering[rows]
        for plane, window in zip(found, self.windows(sources), strict=True):
            if window is not None:
                plane[...] = chosen[(slice(None), *window)]
        return found.reshape(len(sources), -1)

    def windows(self, sources: Array) -> list[tuple[int | slice, ...] | None]:
        """Return the index of each plane in one input's `entering`, channel and window; None for the bias."""
        kernel, geometry = self._info.parameters["weight"].shape[2:], geometry_of(self._info)
        found: list[tuple[int | slice, ...] | None] = []
        for source in sources:
            channel, *offsets = map(int, np.unravel_index(max(0, source), (1 + int(self._channels[-1]), *kernel)))
            window = window_at(offsets, geometry, self.positions)
            found.append(None if source == BIAS else (int(np.searchsorted(self._channels, channel)), *window))
        return found


def find_channels(plain: PlainEvaluator, cuts: GroupedCuts, memory: int) -> TouchedChannels | None:
    """Gather a convolution's touched channels; None if candidates touch more, or their inputs do not fit in memory."""
    info = plain.backend.info(cuts.layer)
    if len(cuts.layers) > 1 or not cuts.continues or info.kind != "conv" or info.uses != 1 or info.geometry is None:
        return None
    channels, touched = touched_channels(info, plain.suspects)
    gathered = _gather(plain.backend, plain.fitness_inputs, info, channels, memory // 4)
    return None if gathered is None else TouchedChannels(Planes(info, channels, *gathered), touched)


def touched_channels(info: LayerInfo, suspects: Selection) -> tuple[Array, ChangedWeights]:
    """Return the input channels of a convolution's touched weights, ascending, and these weights."""
    shape = info.parameters["weight"].shape
    per_group, outputs_per_group = shape[1], shape[0] // geometry_of(info).groups

    def channel(index: tuple[Array, ...]) -> Array:
        return np.asarray(index[0] // outputs_per_group * per_group + index[1])

    used = [channel(slice_.index) for slice_ in suspects.slices if slice_.key == (info.name, "weight")]
    channels = np.unique(used[0] if used else np.zeros(1, np.int64))
    size = (1 + int(channels[-1]), *shape[2:])
    touched = ChangedWeights.of(
        suspects, info.name, lambda index: np.ravel_multi_index((channel(index), *index[2:]), size)
    )
    return channels, touched


def geometry_of(info: LayerInfo) -> Geometry:
    """Return the geometry of a convolution."""
    if info.geometry is None:
        raise ValueError(f"layer '{info.name}' is a convolution without geometry")
    return info.geometry


def window_at(offsets: Sequence[int], geometry: Geometry, positions: Sequence[int]) -> tuple[slice, ...]:
    """Return the window of a padded plane that the kernel's weight at `offsets` is multiplied with."""
    steps = zip(offsets, geometry.dilation, geometry.stride, positions, strict=True)
    return tuple(slice(o * d, o * d + s * (n - 1) + 1, s) for o, d, s, n in steps)


def _gather(
    backend: ModelBackend, fitness_inputs: FitnessInputs, info: LayerInfo, channels: Array, memory: int
) -> tuple[Array, tuple[int, ...]] | None:
    """Return the padded inputs of some channels and the spatial shape of the output; None if memory is too small."""
    parts: list[Array] = []
    positions: tuple[int, ...] = ()
    whole: Array | None = None
    for rows in batches(len(fitness_inputs), INPUTS_AT_ONCE):
        if whole is None:
            (use,) = backend.activations(take(fitness_inputs.inputs, rows), info.name)
            entering, positions = use.entering["weight"], use.leaving.shape[2:]
        if not parts:
            whole = _inputs_as(fitness_inputs.inputs, entering)
        parts.append(
            Planes.with_padding(info, channels, entering if whole is None else whole[rows], positions).entering
        )
        if parts[0].nbytes / len(parts[0]) * len(fitness_inputs) > memory:
            return None
    return np.concatenate(parts), positions


def _inputs_as(inputs: Inputs, entering: Array) -> Array | None:
    """Return the model's inputs if they equal the layer's inputs bit for bit, so that the model need not run."""
    if isinstance(inputs, Mapping) or not is_plain(inputs) or np.ndim(inputs) < 3:
        return None
    for whole in (inputs, np.moveaxis(inputs, -1, 1)):
        if whole.shape[1:] == entering.shape[1:] and np.array_equal(whole[: len(entering)], entering):
            return np.asarray(whole)
    return None
