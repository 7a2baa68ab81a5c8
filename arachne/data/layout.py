"""Guess whether inputs are pictures, from their shape and the correlation of neighbouring values."""

from __future__ import annotations

import math

import numpy as np

from arachne.model.values import Array

MIN_CORRELATION = 0.3
"""The least correlation of neighbouring values of a picture or a signal."""


def picture_layout(sample: Array) -> tuple[int, ...] | None:
    """Return the shape that makes pictures of some inputs `(n, ...)`; None if they are not pictures.

    Two numbers are height and width; three with 1, 3 or 4 in front are channels first, at the end channels last.
    """
    shape = sample.shape[1:]
    if len(shape) == 3 and (shape[0] in (1, 3, 4) or shape[2] in (1, 3, 4)) and min(sorted(shape)[1:]) >= 4:
        return shape
    if (
        len(shape) == 2
        and min(shape) >= 8
        and neighbour_correlation(sample, 1) > MIN_CORRELATION
        and neighbour_correlation(sample, 2) > MIN_CORRELATION
    ):
        return shape
    if len(shape) == 1:
        found = [(_vertical_correlation(sample, layout), layout) for layout in _square_layouts(shape[0])]
        if found and max(found)[0] > MIN_CORRELATION:
            return max(found)[1]
    return None


def as_pictures(inputs: Array, layout: tuple[int, ...]) -> Array:
    """Reshape inputs `(n, ...)` to pictures `(n, height, width, channels)`."""
    pictures = inputs.reshape(len(inputs), *layout)
    if len(layout) == 2:
        return pictures[..., None]
    return pictures if layout[2] in (1, 3, 4) else np.moveaxis(pictures, 1, -1)


def neighbour_correlation(values: Array, axis: int) -> float:
    """Return the correlation between values and their next neighbours along an axis; 0 if nothing varies."""
    values = np.asarray(values, dtype=np.float64)
    one = np.take(values, range(values.shape[axis] - 1), axis).ravel()
    other = np.take(values, range(1, values.shape[axis]), axis).ravel()
    spread = one.std() * other.std()
    return float(((one - one.mean()) * (other - other.mean())).mean() / spread) if spread > 0 else 0.0


def _square_layouts(size: int) -> list[tuple[int, ...]]:
    layouts: list[tuple[int, ...]] = []
    for channels in (1, 3):
        side = math.isqrt(size // channels)
        if side >= 8 and side * side * channels == size:
            layouts += [(side, side)] if channels == 1 else [(3, side, side), (side, side, 3)]
    return layouts


def _vertical_correlation(sample: Array, layout: tuple[int, ...]) -> float:
    pictures = as_pictures(sample, layout)
    return neighbour_correlation(pictures[..., 0], 1)
