"""Where a tensor holds its inputs, found by two short runs: when inputs change places, so do exactly their numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from arachne.adapting.folds import Fold
from arachne.values import Array


def find_fold(longer: Array, shorter: Array) -> Fold | None:
    """The fold of a tensor, from a run on three inputs and one on the last two of them; None if there is none."""
    if longer.shape == shorter.shape:
        same = np.array_equal(longer, shorter, equal_nan=True) if longer.dtype.kind in "fiub" else True
        return Fold(None) if same else None
    if longer.ndim != shorter.ndim:
        return None
    axes = [axis for axis in range(longer.ndim) if longer.shape[axis] != shorter.shape[axis]]
    if len(axes) != 1 or longer.shape[axes[0]] * 2 != shorter.shape[axes[0]] * 3:
        return None
    (axis,) = axes
    for fold in _possible(axis, longer.shape[axis] // 3):
        if _alike(fold.apart(longer, 3)[1:], fold.apart(shorter, 2)):
            return fold
    return None


def find_fixed_fold(before: Array, after: Array, n: int) -> Fold | None:
    """The same for a model of a fixed batch, from runs on the inputs and on the inputs moved on by one."""
    if n == 1:
        return Fold(0, max(1, before.shape[0])) if before.ndim else Fold(None)
    if before.shape != after.shape:
        return None
    if np.array_equal(before, after, equal_nan=before.dtype.kind == "f"):
        return Fold(None)
    for axis in range(before.ndim):
        if before.shape[axis] % n == 0:
            for fold in _possible(axis, before.shape[axis] // n):
                if _alike(np.roll(fold.apart(before, n), 1, axis=0), fold.apart(after, n)):
                    return fold
    return None


def _possible(axis: int, each: int) -> Sequence[Fold]:
    return [Fold(axis, each), Fold(axis, each, strided=True)] if each > 1 else [Fold(axis)]


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
    """Numbers that only depend on how many inputs there are (a shape): value at none, and what each input adds."""
    if longer.shape != shorter.shape or longer.dtype.kind not in "iu":
        return None
    slope = longer - shorter
    return longer - 3 * slope, slope
