"""Undo an exporter's folding of layers: express the weights of another file in the terms of this one.

A batch normalisation that is folded into the layer before it multiplies every row of that layer's weights by a factor
and gives it another bias; a framework with one bias per gate keeps the sum of another one's two. The factor of a row is
measured, not taken from the normalisation: it is proven when most weights of the row agree with it, and those that do
not are the ones that were changed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from arachne.model.values import Array
from arachne.patch.match_tensor import TOLERANCE
from arachne.weights.storage import STORAGES


class NotProvenError(Exception):
    """Most weights of a row differ, and not by one factor."""

    def __init__(self, row: int) -> None:
        self.row = row


@dataclass(frozen=True)
class Unfolded:
    """A tensor of another file in this one's terms.

    Attributes:
        values: What this file's tensor would have to be; its own weights where both agree.
        factors: What the other file has multiplied each row by, `(rows,)`.
    """

    values: Array
    factors: Array

    @property
    def is_folded(self) -> bool:
        """Whether a row has another factor than 1."""
        return bool(np.any(self.factors != 1))


def unfold(own: Array, other: Array, dtypes: tuple[str, str]) -> Unfolded:
    """The other file's tensor with its factors taken out.

    Args:
        own: This file's tensor `(rows, ...)`.
        other: The other's, of the same shape.
        dtypes: What the two are stored in.

    Raises:
        NotProvenError: A row's factor cannot be determined.
    """
    there = np.asarray(other, np.float64)
    if _mostly(STORAGES[dtypes[0]].round(other) == own, own):
        return Unfolded(there, np.ones(len(own)))
    tolerance = 4 * max(TOLERANCE[dtype] for dtype in dtypes)
    here = np.asarray(own, np.float64)
    values, factors = here.copy(), np.ones(len(own))
    for row in range(len(own)):
        factors[row], agreeing = _factor(here[row].ravel(), there[row].ravel(), tolerance)
        if not _mostly(agreeing, here[row].ravel()):
            raise NotProvenError(row)
        changed = ~agreeing.reshape(here[row].shape)
        values[row][changed] = there[row][changed] / factors[row]
    return Unfolded(values, factors)


def unexplained_share(own: Array, other: Array, dtypes: tuple[str, str]) -> float:
    """The share of weights that no factor per row explains: small for one layer before and after folding."""
    tolerance = 4 * max(TOLERANCE[dtype] for dtype in dtypes)
    here = np.asarray(own, np.float64).reshape(len(own), -1)
    there = np.asarray(other, np.float64).reshape(len(own), -1)
    rows = zip(here, there, strict=True)
    return 1 - sum(int(_factor(a, b, tolerance)[1].sum()) for a, b in rows) / max(here.size, 1)


def unfold_bias(read: Callable[[str], Array | None], other: Callable[[str], Array | None], tolerance: float) -> Array:
    """The `bias_ih` of a recurrent layer that adds up to the other file's biases; its own where the sums agree.

    Args:
        read: This file's `bias_ih` and `bias_hh`; None for one that it does not have.
        other: The other file's.
        tolerance: How far sums may lie apart, as a share of their root mean square.
    """
    own, second = np.asarray(read("bias_ih"), np.float64), read("bias_hh")
    rest = np.zeros_like(own) if second is None else np.asarray(second, np.float64)
    parts = [np.asarray(part, np.float64) for part in map(other, ("bias_ih", "bias_hh")) if part is not None]
    wanted = np.sum(parts, axis=0)
    apart = np.abs(wanted - own - rest) > tolerance * np.maximum(_size(own + rest), np.abs(own) + np.abs(rest))
    return np.where(apart, wanted - rest, own)


def _factor(here: Array, there: Array, tolerance: float) -> tuple[float, Array]:
    """The factor between two rows `(size,)`, 1 where that fits as well, and which weights agree with it `(size,)`."""
    plain = _agreeing(here, there, 1.0, tolerance)
    known = here != 0
    if _mostly(plain, here) or np.count_nonzero(known) < 2:
        return 1.0, plain
    ratios = np.sort(there[known] / here[known])
    factor = float(ratios[(len(ratios) - 1) // 2])
    if factor == 0 or not np.isfinite(factor):
        return 1.0, plain
    agreeing = _agreeing(here, there, factor, tolerance)
    # Any two numbers have a factor: one weight alone proves nothing.
    return (factor, agreeing) if np.count_nonzero(agreeing & known) > 1 else (1.0, plain)


def _agreeing(here: Array, there: Array, factor: float, tolerance: float) -> Array:
    expected = factor * here
    return np.asarray(np.abs(there - expected) <= tolerance * np.maximum(np.abs(expected), _size(expected)))


def _mostly(agreeing: Array, own: Array) -> bool:
    """Whether more than half of the weights agree; zeros agree with any factor and count only when all are zero."""
    known = own != 0
    if not known.any():
        return bool(agreeing.all())
    return bool(2 * np.count_nonzero(agreeing & known) > np.count_nonzero(known))


def _size(values: Array) -> float:
    return float(np.sqrt(np.mean(values**2)))
