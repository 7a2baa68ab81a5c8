"""Describe a stamp in words: a frame, rows, columns, a rectangle, or so many values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from arachne.causes.features import layout_of
from arachne.data.layout import as_pictures
from arachne.model.values import Array
from arachne.text import number_text

MIN_FULL = 0.9
"""The least share of a shape's pixels that a stamp of that shape has."""


def describe_stamp(index: Array, value: Array, inputs: Array, names: Sequence[str] | None = None) -> str:
    """Describe the values a stamp sets.

    Args:
        index: Positions in the flattened input `(k,)`.
        value: Their values `(k,)`.
        inputs: Some inputs `(n, ...)`, which tell pictures from tables.
        names: The names of an input's values, if they have any.
    """
    same = bool(np.ptp(value) <= 1e-6 * max(1.0, float(np.abs(value).max()))) if not np.isnan(value).any() else False
    what = number_text(float(value[0])) if same else "the same in all of them"
    what = "missing" if np.isnan(value).all() else what
    layout = layout_of(inputs)
    if layout is None:
        columns = [str(int(one)) if names is None else f"'{names[int(one)]}'" for one in index[:8]]
        if len(index) == 1:
            return f"column {columns[0]} is {what}"
        return f"columns {', '.join(columns)}{', …' if len(index) > 8 else ''} are {what}"
    flat = np.zeros((1, int(np.prod(layout))), dtype=bool)
    flat[0, index] = True
    mask = as_pictures(flat, layout)[0].any(axis=-1)
    return f"{_describe_shape(mask)} {'are' if mask.sum() > 1 else 'is'} {what}"


def _describe_shape(mask: Array) -> str:
    """Describe which pixels `(height, width)` a stamp covers."""
    rows, columns = (np.flatnonzero(mask.any(axis=axis)) for axis in (1, 0))
    top, left, bottom, right = int(rows[0]), int(columns[0]), int(rows[-1]), int(columns[-1])
    if mask.sum() == 1:
        return f"pixel ({top}, {left})"
    frame = _frame_width(mask)
    if frame:
        return f"the pixels of a frame, {frame} wide,"
    full_rows, full_columns = (np.flatnonzero(mask.mean(axis=axis) >= MIN_FULL / 2) for axis in (1, 0))
    for name, full, spread in (("row", full_rows, columns), ("column", full_columns, rows)):
        size = mask.shape[1 if name == "row" else 0]
        if len(full) and mask.sum() <= 1.2 * len(full) * size and len(spread) >= 0.6 * size:
            first, last = int(full[0]), int(full[-1])
            return f"the pixels of {name} {first}" if first == last else f"the pixels of {name}s {first} to {last}"
    box = mask[top : bottom + 1, left : right + 1]
    region = f"from ({top}, {left}) to ({bottom}, {right})"
    return f"pixels {region}" if box.mean() >= MIN_FULL else f"{int(mask.sum())} pixels {region}"


def _frame_width(mask: Array) -> int:
    """Return the width of the frame that the pixels are; 0 if they are none."""
    for width in range(1, min(mask.shape) // 3):
        frame = np.ones(mask.shape, dtype=bool)
        frame[width:-width, width:-width] = False
        if (mask & frame).sum() >= MIN_FULL * max(frame.sum(), mask.sum()):
            return width
    return 0
