"""Find the batch axis of a tensor by two short runs: inputs that move take exactly their own numbers with them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from arachne.adapting.batch_axis import BatchAxis
from arachne.model.values import Array


def find_batch_axis(longer: Array, shorter: Array) -> BatchAxis | None:
    """Compare a tensor in a run on three inputs and one on the last two of them; None if it mixes its inputs."""
    if longer.shape == shorter.shape:
        same = np.array_equal(longer, shorter, equal_nan=True) if longer.dtype.kind in "fiub" else True
        return BatchAxis(None) if same else None
    if longer.ndim != shorter.ndim:
        return None
    axes = [axis for axis in range(longer.ndim) if longer.shape[axis] != shorter.shape[axis]]
    if len(axes) != 1 or longer.shape[axes[0]] * 2 != shorter.shape[axes[0]] * 3:
        return None
    (axis,) = axes
    for batch_axis in _possible(axis, longer.shape[axis] // 3):
        if _alike(batch_axis.to_batch_first(longer, 3)[1:], batch_axis.to_batch_first(shorter, 2)):
            return batch_axis
    return None


def guess_batch_axis(before: Array, after: Array, n: int) -> BatchAxis | None:
    """Compare a tensor in runs on a fixed batch and on the batch rotated by one; None if it mixes its inputs."""
    if n == 1:
        return BatchAxis(0, max(1, before.shape[0])) if before.ndim else BatchAxis(None)
    if before.shape != after.shape:
        return None
    if np.array_equal(before, after, equal_nan=before.dtype.kind == "f"):
        return BatchAxis(None)
    for axis in range(before.ndim):
        if before.shape[axis] % n == 0:
            for batch_axis in _possible(axis, before.shape[axis] // n):
                if _alike(
                    np.roll(batch_axis.to_batch_first(before, n), 1, axis=0), batch_axis.to_batch_first(after, n)
                ):
                    return batch_axis
    return None


def _possible(axis: int, each: int) -> Sequence[BatchAxis]:
    return [BatchAxis(axis, each), BatchAxis(axis, each, strided=True)] if each > 1 else [BatchAxis(axis)]


def _alike(a: Array, b: Array) -> bool:
    if a.shape != b.shape:
        return False
    if a.dtype.kind != "f":
        return bool(np.array_equal(a, b))
    # Batches of other sizes take other paths through a matrix product; its last digits may differ.
    finite = np.abs(a[np.isfinite(a)])
    scale = float(finite.max()) if finite.size else 0.0
    return bool(np.allclose(a, b, rtol=1e-3, atol=1e-3 * scale + 1e-9, equal_nan=True))


def linear_in_n(longer: Array, shorter: Array) -> tuple[Array, Array] | None:
    """Split numbers that depend only on the batch size (a shape) into their value at 0 and the increment per input."""
    if longer.shape != shorter.shape or longer.dtype.kind not in "iu":
        return None
    slope = longer - shorter
    return longer - 3 * slope, slope
