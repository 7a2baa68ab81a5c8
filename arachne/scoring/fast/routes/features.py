"""Features: the steps from a convolution's outputs to the next layer: function, pooling, flattening, padding.

`LayerInfo.followed_by` names these steps, but not a pooling's geometry or how much is padded. Poolings with adjacent
windows are tried, and accepted only if they turn whole batches of outputs into the actual inputs of the next layer.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from arachne.model.values import Array
from arachne.scoring.functions import FUNCTIONS, IDENTITY, MONOTONE, Function, apply

MAX_RELATIVE_DIFFERENCE = 1e-5
"""The largest accepted difference to the next layer's inputs, as a share of their largest magnitude."""

MIN_TELLING_WINDOWS = 100
"""The numbers must differ in at least this many windows: a pooling of equal numbers could be any pooling."""

POOLS = {"max_pool": "max", "average_pool": "mean", "global_max_pool": "max", "global_average_pool": "mean"}

FLATTENS = {"flatten": True, "flatten_last": False}
"""Whether flattening keeps the features of a channel side by side."""

PADDING = "zero_pad"
"""The name of a step that puts zeros around the planes, before a convolution."""

Padding = tuple[tuple[int, int], ...]
"""Zeros before and after, for each spatial axis."""


@dataclass(frozen=True)
class Features:
    """The steps that turn a convolution's outputs into features, the inputs of the next layer.

    Attributes:
        before: The functions before the pooling.
        pool: `max`, `mean` or nothing.
        window: The pooling's kernel and stride, for each spatial axis.
        after: The functions behind the pooling.
        channels_first: Whether flattening keeps the features of a channel side by side.
        padding: Zeros put around the features afterwards, for each spatial axis.
    """

    before: tuple[Function, ...]
    pool: str
    window: tuple[int, ...]
    after: tuple[Function, ...]
    channels_first: bool
    padding: Padding

    def of(self, outputs: Array, axis: int) -> Array:
        """Compute the features of outputs whose spatial axes start at `axis`, without padding; pooled axes shrink."""
        if not self.pool:
            return apply(self.after, apply(self.before, outputs))
        # max(f(x)) = f(max(x)) for a function that never falls, and behind the maximum there is less to compute.
        if self.pool == "max" and MONOTONE.issuperset(self.before):
            return apply(self.after, apply(self.before, _pool(outputs, axis, self.window, self.pool)))
        return apply(self.after, _pool(apply(self.before, outputs), axis, self.window, self.pool))

    def columns(self, channels: Array, n_channels: int, positions: int) -> Array:
        """Return the numbers of the dense layer's inputs that come from some channels, `(channels, positions)`."""
        if self.channels_first:
            return np.asarray(channels[:, None] * positions + np.arange(positions))
        return np.asarray(channels[:, None] + n_channels * np.arange(positions))


def readable(followed_by: Sequence[str] | None) -> bool:
    """Tell whether the backend names the steps after a convolution, and all names are known."""
    return _read(followed_by) is not None


def find_features(followed_by: Sequence[str] | None, outputs: Array, entering: Array) -> Features | None:
    """Find the steps that turn `outputs` into `entering`; None if they are not certain.

    Args:
        followed_by: The backend's names of the steps after the convolution.
        outputs: The outputs of the convolution, `(n, channels, ...)`.
        entering: The next layer's inputs: `(n, features)`, or `(n, channels, ...)` if it is a convolution too.
    """
    steps = _read(followed_by)
    if steps is None or outputs.ndim < 3 or entering.ndim not in (2, outputs.ndim):
        return None
    before, pool, after, channels_first, padded = steps
    n, channels, *spatial = outputs.shape
    for window, padding in _geometries(tuple(spatial), channels, entering.shape, bool(pool), padded):
        found = Features(before, pool, window, after, channels_first, padding)
        made = found.of(outputs, 2)
        if entering.ndim == 2:
            flat = made.reshape(n, channels, -1)
            made = (flat if channels_first else flat.transpose(0, 2, 1)).reshape(n, -1)
        else:
            made = np.pad(made, [(0, 0), (0, 0), *padding])
        if made.shape != entering.shape:
            continue
        close = np.abs(made - entering).max(initial=0) <= MAX_RELATIVE_DIFFERENCE * np.abs(entering).max(initial=0)
        if close and (not pool or _telling(found, outputs)):
            return found
    return None


def _read(
    names: Sequence[str] | None,
) -> tuple[tuple[Function, ...], str, tuple[Function, ...], bool, bool] | None:
    """Parse the steps: functions, pooling, functions, channels-first flattening, padding; None if one is unknown."""
    if names is None:
        return None
    before: list[Function] = []
    after: list[Function] = []
    pool, channels_first, padded = "", True, False
    for name in names:
        if padded:
            return None
        if name in FUNCTIONS:
            (after if pool else before).append(FUNCTIONS[name])
        elif name in POOLS and not pool:
            pool = POOLS[name]
        elif name in FLATTENS:
            channels_first = FLATTENS[name]
        elif name == PADDING:
            padded = True
        elif name not in IDENTITY:
            return None
    return tuple(before), pool, tuple(after), channels_first, padded


def _geometries(
    spatial: tuple[int, ...], channels: int, entering: tuple[int, ...], pooled: bool, padded: bool
) -> Iterator[tuple[tuple[int, ...], Padding]]:
    """Yield pooling windows and paddings that result in the shape of the next layer's inputs."""
    if len(entering) == 2:
        if not padded:
            windows = _windows(spatial, entering[1] / channels) if pooled else [(1,) * len(spatial)]
            yield from ((window, ()) for window in windows)
        return
    for size in range(1, max(spatial) + 1) if pooled else (1,):
        missing = [after - before // size for after, before in zip(entering[2:], spatial, strict=True)]
        if min(missing) < 0 or (max(missing) > 0 and not padded):
            continue
        # The same number of zeros before and after, one more on one side, or all on one side.
        firsts = [dict.fromkeys([zeros // 2, (zeros + 1) // 2, 0, zeros]) for zeros in missing]
        for starts in itertools.product(*firsts):
            yield (
                (size,) * len(spatial),
                tuple((first, zeros - first) for first, zeros in zip(starts, missing, strict=True)),
            )


def _windows(spatial: tuple[int, ...], positions: float) -> list[tuple[int, ...]]:
    """Return windows of one size on every axis that result in this number of positions; for 1 also the whole plane."""
    sizes = [size for size in range(1, max(spatial) + 1) if np.prod([s // size for s in spatial]) == positions]
    windows = [(size,) * len(spatial) for size in sizes]
    return [*windows, spatial] if positions == 1 else windows


def _telling(features: Features, outputs: Array) -> bool:
    """Tell whether the numbers differ in enough windows."""
    activated = apply(features.before, outputs)
    highest, lowest = _pool(activated, 2, features.window, "max"), -_pool(-activated, 2, features.window, "max")
    return int((highest > lowest).sum()) >= MIN_TELLING_WINDOWS


def _pool(outputs: Array, axis: int, window: tuple[int, ...], pool: str) -> Array:
    """Pool adjacent windows, one axis after the other; an incomplete last window is left out."""
    for at, size in enumerate(window, start=axis):
        n = outputs.shape[at] // size
        slices = [
            outputs[(slice(None),) * at + (slice(first, first + size * (n - 1) + 1, size),)] for first in range(size)
        ]
        total = slices[0]
        for piece in slices[1:]:
            total = np.maximum(total, piece) if pool == "max" else total + piece
        outputs = total if pool == "max" else total / np.float32(size)
    return outputs
