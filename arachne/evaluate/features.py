"""From a convolution's outputs to what enters the dense layer behind it: elementwise function, pooling, flattening.

`LayerInfo.followed_by` does not tell a pooling's geometry, nor in which order a framework flattens. Both are found out
by trying what is common on a few inputs: what does not give the numbers that enter the dense layer is not it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from arachne.evaluate.elementwise import FUNCTIONS, Function
from arachne.values import Array

CLOSE = 1e-5
"""How far, relative to the largest number, what is tried may lie from what enters the dense layer."""


@dataclass(frozen=True)
class Features:
    """How outputs become features.

    Attributes:
        function: The elementwise function; None for none.
        pool: `max`, `mean` or nothing.
        window: The pooling's kernel and stride, for each spatial axis.
        function_first: Whether the function comes before the pooling.
        channels_first: Whether flattening keeps the features of a channel side by side.
    """

    function: Function | None
    pool: str
    window: tuple[int, ...]
    function_first: bool
    channels_first: bool

    def of(self, outputs: Array, axis: int) -> Array:
        """Features of outputs whose spatial axes start at `axis`; others are left as they are, pooled ones shrink."""
        if self.function is not None and self.function_first:
            outputs = self.function(outputs)
        if self.pool:
            outputs = _pooled(outputs, axis, self.window, self.pool)
        if self.function is not None and not self.function_first:
            outputs = self.function(outputs)
        return outputs

    def columns(self, channels: Array, n_channels: int, positions: int) -> Array:
        """Which features of the dense layer some channels become, `(channels, positions)`."""
        if self.channels_first:
            return np.asarray(channels[:, None] * positions + np.arange(positions))
        return np.asarray(channels[:, None] + n_channels * np.arange(positions))


def find_features(outputs: Array, entering: Array) -> Features | None:
    """What makes `entering` `(n, features)` out of `outputs` `(n, channels, ...)`; None where nothing common does."""
    n, channels, *spatial = outputs.shape
    largest = float(np.abs(entering).max(initial=0))
    for guess in _guesses(tuple(spatial), entering.shape[1] / channels):
        found = guess.of(outputs, 2).reshape(n, channels, -1)
        if found.size != entering.size:
            continue
        flat = (found if guess.channels_first else found.transpose(0, 2, 1)).reshape(n, -1)
        if np.abs(flat - entering).max(initial=0) <= CLOSE * largest:
            return guess
    return None


def _guesses(spatial: tuple[int, ...], positions: float) -> Iterator[Features]:
    whole = positions == np.prod(spatial)
    windows = [(1,) * len(spatial)] if whole else _windows(spatial, positions)
    for window in windows:
        for function in (None, *dict.fromkeys(FUNCTIONS.values())):
            for pool, function_first in [("", True)] if whole else [("max", True), ("mean", True), ("mean", False)]:
                for channels_first in (True, False):
                    yield Features(function, pool, window, function_first, channels_first)


def _windows(spatial: tuple[int, ...], positions: float) -> list[tuple[int, ...]]:
    """Windows side by side, the same on every axis, that leave so many positions; or all of them at once."""
    sizes = [size for size in range(2, max(spatial) + 1) if np.prod([s // size for s in spatial]) == positions]
    windows = [(size,) * len(spatial) for size in sizes]
    return [*windows, spatial] if positions == 1 else windows


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
