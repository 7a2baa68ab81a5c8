"""From a convolution's outputs to what enters the layer behind it: elementwise function, pooling, flattening, padding.

`LayerInfo.followed_by` tells what they are, but not a pooling's geometry. Windows side by side are what is common; that
it is what the model does is found out from the numbers of whole batches.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from arachne.evaluate.routes.functions import FUNCTIONS, IDENTITY, MONOTONE, Function, apply
from arachne.values import Array

CLOSE = 1e-5
"""How far, relative to the largest number, what is tried may lie from what enters the next layer."""

TELLING = 100
"""In so many windows at least the numbers have to differ, or a pooling could be another one than it seems."""

POOLS = {"max_pool": "max", "average_pool": "mean", "global_max_pool": "max", "global_average_pool": "mean"}

FLATTENS = {"flatten": True, "flatten_last": False}
"""Whether flattening keeps the features of a channel side by side."""

PADDING = "zero_pad"
"""Zeros around the planes, before a convolution."""

Padding = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Features:
    """How outputs become features.

    Attributes:
        before: The functions before the pooling.
        pool: `max`, `mean` or nothing.
        window: The pooling's kernel and stride, for each spatial axis.
        after: The functions behind it.
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
        """Features of outputs whose spatial axes start at `axis`, without padding; pooled axes shrink."""
        if not self.pool:
            return apply(self.after, apply(self.before, outputs))
        # Continuation a maximum there is less to compute, and functions that only rise give the same there.
        if self.pool == "max" and MONOTONE.issuperset(self.before):
            return apply(self.after, apply(self.before, _pooled(outputs, axis, self.window, self.pool)))
        return apply(self.after, _pooled(apply(self.before, outputs), axis, self.window, self.pool))

    def columns(self, channels: Array, n_channels: int, positions: int) -> Array:
        """Which features of a dense layer some channels become, `(channels, positions)`."""
        if self.channels_first:
            return np.asarray(channels[:, None] * positions + np.arange(positions))
        return np.asarray(channels[:, None] + n_channels * np.arange(positions))


def readable(followed_by: Sequence[str] | None) -> bool:
    """Whether what follows a convolution is told, and known."""
    return _read(followed_by) is not None


def find_features(followed_by: Sequence[str] | None, outputs: Array, entering: Array) -> Features | None:
    """How `outputs` `(n, channels, ...)` become `entering`; None where that is not certain.

    Args:
        followed_by: What the backend says follows the convolution.
        outputs: What leaves it.
        entering: What enters the next layer: `(n, features)`, or `(n, channels, ...)` where that is a convolution too.
    """
    told = _read(followed_by)
    if told is None or outputs.ndim < 3 or entering.ndim not in (2, outputs.ndim):
        return None
    before, pool, after, channels_first, padded = told
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
        close = np.abs(made - entering).max(initial=0) <= CLOSE * np.abs(entering).max(initial=0)
        if close and (not pool or _telling(found, outputs)):
            return found
    return None


def _read(
    names: Sequence[str] | None,
) -> tuple[tuple[Function, ...], str, tuple[Function, ...], bool, bool] | None:
    """Functions, pooling, functions, the order of flattening, and whether padding ends it; None for anything else."""
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
    """Windows of a pooling and paddings that lead to what enters."""
    if len(entering) == 2:
        if not padded:
            windows = _windows(spatial, entering[1] / channels) if pooled else [(1,) * len(spatial)]
            yield from ((window, ()) for window in windows)
        return
    for size in range(1, max(spatial) + 1) if pooled else (1,):
        missing = [after - before // size for after, before in zip(entering[2:], spatial, strict=True)]
        if min(missing) < 0 or (max(missing) > 0 and not padded):
            continue
        # As much before as behind, one more on one side, or all on one side.
        firsts = [dict.fromkeys([zeros // 2, (zeros + 1) // 2, 0, zeros]) for zeros in missing]
        for starts in itertools.product(*firsts):
            yield (
                (size,) * len(spatial),
                tuple((first, zeros - first) for first, zeros in zip(starts, missing, strict=True)),
            )


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
