"""Touched channels: candidates that change some weights of one convolution.

A weight of a kernel is multiplied with one plane of its input, shifted by its place in the kernel. So a candidate's
change of a channel is a sum of few planes, and the model continues from its outputs behind the cut.
"""

from __future__ import annotations

import numpy as np

from arachne.backend import ModelBackend
from arachne.evaluate.base import Stake
from arachne.evaluate.cuts import Cuts
from arachne.evaluate.cutting import CutRoute, Growth, WeightsWith
from arachne.evaluate.dense import shared_product
from arachne.evaluate.tail import BIAS, Touched
from arachne.localise.base import Suspects
from arachne.values import Array, Geometry, LayerInfo, batches, count, take

ROWS = 256
"""How many inputs are looked at together while the planes are gathered."""

TOGETHER = 1 << 26
"""How many bytes of outputs are handed to the model at once."""


class ChannelRoute(CutRoute):
    """Candidates that touch one convolution alone.

    Args:
        stake: The inputs.
        cuts: The model, held open at the convolution.
        weights_with: The whole parameters of a candidate.
        original: Scores of the original model, `(n, classes)`.
        growth: How much more than the original's a candidate's scores are rounded.
        planes: What the touched weights are multiplied with.
        touched: Which weights they are.
        outputs: What leaves the convolution, `(n, channels, ...)`; None asks the cut for it each time.
    """

    name = "touched channels"
    block = 20

    def __init__(
        self,
        stake: Stake,
        cuts: Cuts,
        weights_with: WeightsWith,
        original: Array,
        growth: Growth,
        planes: Planes,
        touched: Touched,
        outputs: Array | None,
    ) -> None:
        super().__init__(stake, cuts, weights_with, original, growth)
        self._planes = planes
        self._touched = touched
        self._outputs = outputs

    def scores_of(self, trials: Array, rows: Array) -> Array:
        change = self._touched.change(trials)
        found: list[Array] = []
        for part in batches(len(rows), max(1, TOGETHER // self._planes.output_bytes)):
            found.append(self._scores(change, rows[part]))
        return np.concatenate(found, axis=1)

    def _scores(self, change: Array, rows: Array) -> Array:
        outputs = self._cuts.outputs(rows) if self._outputs is None else self._outputs[rows]
        planes = self._planes.of(rows, self._touched.sources)
        units, together = self._touched.units, max(1, TOGETHER // max(1, outputs.nbytes))
        found = []
        for part in batches(len(change), together):
            n = len(change[part])
            moved = shared_product(change[part], planes).reshape(len(units), n, *outputs[:, 0].shape)
            changed = np.repeat(outputs[None], n, axis=0)
            changed[:, :, units] += np.moveaxis(moved, 0, 2)
            scores = self._cuts.scores_from_outputs(changed.reshape(-1, *outputs.shape[1:]), np.tile(rows, n))
            found.append(scores.reshape(n, len(rows), -1))
        return np.concatenate(found)


class Planes:
    """The input planes of a convolution that touched weights are multiplied with.

    Args:
        info: The convolution.
        channels: The input channels that are kept, ascending.
        entering: What enters them, padded, `(n, channels, ...)`.
        positions: The spatial shape of the output.
    """

    def __init__(self, info: LayerInfo, channels: Array, entering: Array, positions: tuple[int, ...]) -> None:
        self._info = info
        self._channels = channels
        self.entering = entering
        self._positions = positions

    @classmethod
    def padded(cls, info: LayerInfo, channels: Array, entering: Array, positions: tuple[int, ...]) -> Planes:
        """From what enters all channels, without its padding."""
        around = [(0, 0), (0, 0), *geometry_of(info).padding]
        return cls(info, channels, np.pad(entering[:, channels].astype(np.float32), around), positions)

    @property
    def output_bytes(self) -> int:
        """How large one input's outputs are."""
        return 4 * self._info.parameters["weight"].shape[0] * int(np.prod(self._positions))

    def of(self, rows: Array, sources: Array) -> Array:
        """Planes of some inputs, `(sources, rows * positions)`."""
        kernel, geometry = self._info.parameters["weight"].shape[2:], geometry_of(self._info)
        found = np.ones((len(sources), len(rows), *self._positions), np.float32)
        chosen = self.entering[rows]
        for plane, source in zip(found, sources, strict=True):
            if source == BIAS:
                continue
            channel, *offsets = map(int, np.unravel_index(source, (1 + int(self._channels[-1]), *kernel)))
            steps = zip(offsets, geometry.dilation, geometry.stride, self._positions, strict=True)
            window = tuple(slice(o * d, o * d + s * (n - 1) + 1, s) for o, d, s, n in steps)
            whole: Array = chosen[:, np.searchsorted(self._channels, channel)]
            plane[...] = whole[(slice(None), *window)]
        return found.reshape(len(sources), -1)


def find_channels(
    backend: ModelBackend,
    stake: Stake,
    suspects: Suspects,
    cuts: Cuts,
    weights_with: WeightsWith,
    original: Array,
    memory: int,
) -> ChannelRoute | None:
    """The route over a convolution's touched channels; None where it is not open."""
    info = backend.info(cuts.layer)
    if len(cuts.layers) > 1 or not cuts.continues or info.kind != "conv" or info.uses != 1 or info.geometry is None:
        return None
    channels, touched = touched_channels(info, suspects)
    gathered = _gather(backend, stake, info, channels, memory // 4)
    if gathered is None:
        return None
    planes = Planes(info, channels, *gathered)
    fits = planes.output_bytes * len(stake.labels) <= memory // 4
    outputs = cuts.outputs(np.arange(len(stake.labels))) if fits and cuts.whole is not None else None
    return ChannelRoute(stake, cuts, weights_with, original, Growth(backend, suspects), planes, touched, outputs)


def touched_channels(info: LayerInfo, suspects: Suspects) -> tuple[Array, Touched]:
    """The input channels that touched weights of a convolution are multiplied with, ascending, and which they are."""
    shape = info.parameters["weight"].shape
    per_group, outputs_per_group = shape[1], shape[0] // geometry_of(info).groups

    def channel(index: tuple[int, ...]) -> int:
        return index[0] // outputs_per_group * per_group + index[1]

    places = [address for address in suspects.addresses if address.layer == info.name]
    used = [channel(place.index) for place in places if place.parameter == "weight"]
    channels = np.unique(np.array(used or [0], np.int64))
    size = (1 + int(channels[-1]), *shape[2:])
    touched = Touched.of(
        suspects, info.name, lambda index: int(np.ravel_multi_index((channel(index), *index[2:]), size))
    )
    return channels, touched


def geometry_of(info: LayerInfo) -> Geometry:
    """How a convolution walks over its input."""
    if info.geometry is None:
        raise ValueError(f"layer '{info.name}' is a convolution without geometry")
    return info.geometry


def _gather(
    backend: ModelBackend, stake: Stake, info: LayerInfo, channels: Array, memory: int
) -> tuple[Array, tuple[int, ...]] | None:
    """What enters some channels, padded, and the spatial shape of the output; None where it does not fit."""
    parts: list[Array] = []
    positions: tuple[int, ...] = ()
    for rows in batches(count(stake.inputs), ROWS):
        (use,) = backend.activations(take(stake.inputs, rows), info.name)
        positions = use.leaving.shape[2:]
        parts.append(Planes.padded(info, channels, use.entering["weight"], positions).entering)
        if parts[0].nbytes / len(parts[0]) * len(stake.labels) > memory:
            return None
    return np.concatenate(parts), positions
