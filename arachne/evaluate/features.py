"""From a convolution's outputs to what enters the dense layer behind it: elementwise function, pooling, flattening.

`LayerInfo.followed_by` tells what they are, but not a pooling's geometry. Windows side by side are what is common; that
it is what the model does is found out from the numbers of whole batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from arachne.evaluate.elementwise import FUNCTIONS, IDENTITY, Function, apply
from arachne.values import Array

CLOSE = 1e-5
"""How far, relative to the largest number, what is tried may lie from what enters the dense layer."""

TELLING = 100
"""In so many windows at least the numbers have to differ, or a pooling could be another one than it seems."""

POOLS = {
    "max_pool": "max",
    "average_pool": "mean",
    "avg_pool": "mean",
    "adaptive_max_pool": "max",
    "adaptive_avg_pool": "mean",
    "global_max_pool": "max",
    "global_average_pool": "mean",
}
"""Names of poolings, without their number of axes."""

FLATTENS = {"flatten": True, "flatten_last": False}
"""Whether flattening keeps the features of a channel side by side."""


@dataclass(frozen=True)
class Features:
    """How outputs become features.

    Attributes:
        before: The functions before the pooling.
        pool: `max`, `mean` or nothing.
        window: The pooling's kernel and stride, for each spatial axis.
        after: The functions behind it.
        channels_first: Whether flattening keeps the features of a channel side by side.
    """

    before: tuple[Function, ...]
    pool: str
    window: tuple[int, ...]
    after: tuple[Function, ...]
    channels_first: bool

    def of(self, outputs: Array, axis: int) -> Array:
        """Features of outputs whose spatial axes start at `axis`; others are left as they are, pooled ones shrink."""
        outputs = apply(self.before, outputs)
        if self.pool:
            outputs = _pooled(outputs, axis, self.window, self.pool)
        return apply(self.after, outputs)

    def columns(self, channels: Array, n_channels: int, positions: int) -> Array:
        """Which features of the dense layer some channels become, `(channels, positions)`."""
        if self.channels_first:
            return np.asarray(channels[:, None] * positions + np.arange(positions))
        return np.asarray(channels[:, None] + n_channels * np.arange(positions))


def find_features(followed_by: Sequence[str] | None, outputs: Array, entering: Array) -> Features | None:
    """How `outputs` `(n, channels, ...)` become `entering` `(n, features)`; None where that is not certain.

    Args:
        followed_by: What the backend says follows the convolution.
        outputs: What leaves it.
        entering: What enters the dense layer.
    """
    told = _read(followed_by)
    if told is None:
        return None
    before, pool, after, channels_first = told
    n, channels, *spatial = outputs.shape
    for window in _windows(tuple(spatial), entering.shape[1] / channels) if pool else [(1,) * len(spatial)]:
        found = Features(before, pool, window, after, channels_first)
        made = found.of(outputs, 2).reshape(n, channels, -1)
        flat = (made if channels_first else made.transpose(0, 2, 1)).reshape(n, -1)
        if flat.shape != entering.shape:
            continue
        close = np.abs(flat - entering).max(initial=0) <= CLOSE * np.abs(entering).max(initial=0)
        if close and (not pool or _telling(found, outputs)):
            return found
    return None


def _read(
    names: Sequence[str] | None,
) -> tuple[tuple[Function, ...], str, tuple[Function, ...], bool] | None:
    """Functions, pooling, functions, and the order of flattening; None for anything else."""
    if names is None:
        return None
    before: list[Function] = []
    after: list[Function] = []
    pool, channels_first = "", True
    for name in names:
        plain = name[:-2] if name.endswith(("1d", "2d", "3d")) else name
        if name in FUNCTIONS:
            (after if pool else before).append(FUNCTIONS[name])
        elif plain in POOLS and not pool:
            pool = POOLS[plain]
        elif name in FLATTENS:
            channels_first = FLATTENS[name]
        elif name not in IDENTITY:
            return None
    return tuple(before), pool, tuple(after), channels_first


def _windows(spatial: tuple[int, ...], positions: float) -> list[tuple[int, ...]]:
    """Windows side by side, the same on every axis, that leave so many positions; or all of them at once."""
    sizes = [size for size in range(1, max(spatial) + 1) if np.prod([s // size for s in spatial]) == positions]
    windows = [(size,) * len(spatial) for size in sizes]
    return [*windows, spatial] if positions == 1 else windows


def _telling(features: Features, outputs: Array) -> bool:
    """Whether the numbers in enough windows differ."""
    activated = apply(features.before, outputs)
    highest, lowest = _pooled(activated, 2, features.window, "max"), -_pooled(-activated, 2, features.window, "max")
    return int((highest > lowest).sum()) >= TELLING


def _pooled(outputs: Array, axis: int, window: tuple[int, ...], pool: str) -> Array:
    """Windows side by side, one axis after the other; a rest that fills no window is left out."""
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
