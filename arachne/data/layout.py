"""Pictures or something else? Guessed from the shape of inputs and from how alike neighbouring values are."""

from __future__ import annotations

import math

import numpy as np

from arachne.values import Array

ALIKE = 0.3
"""Neighbouring values of a picture or a signal correlate at least this much."""


def picture_layout(sample: Array) -> tuple[int, ...] | None:
    """How some inputs `(n, ...)` become pictures: the shape to give each, or None where they are none.

    Two numbers are height and width; three with 1, 3 or 4 in front are channels first, at the end channels last.
    """
    shape = sample.shape[1:]
    if len(shape) == 3 and (shape[0] in (1, 3, 4) or shape[2] in (1, 3, 4)) and min(sorted(shape)[1:]) >= 4:
        return shape
    if len(shape) == 2 and min(shape) >= 8 and alike(sample, 1) > ALIKE and alike(sample, 2) > ALIKE:
        return shape
    if len(shape) == 1:
        found = [(_vertically_alike(sample, layout), layout) for layout in _square_layouts(shape[0])]
        if found and max(found)[0] > ALIKE:
            return max(found)[1]
    return None


def as_pictures(inputs: Array, layout: tuple[int, ...]) -> Array:
    """Inputs `(n, ...)` as pictures `(n, height, width, channels)`."""
    pictures = inputs.reshape(len(inputs), *layout)
    if len(layout) == 2:
        return pictures[..., None]
    return pictures if layout[2] in (1, 3, 4) else np.moveaxis(pictures, 1, -1)


def alike(values: Array, axis: int) -> float:
    """Correlation between values and their next neighbours along an axis; 0 where nothing varies."""
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


def _vertically_alike(sample: Array, layout: tuple[int, ...]) -> float:
    pictures = as_pictures(sample, layout)
    return alike(pictures[..., 0], 1)
