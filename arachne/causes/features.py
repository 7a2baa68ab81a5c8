"""Features of whole inputs: brightness, blur and dead rows of pictures, length of texts, columns of tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from arachne.causes.cases import Cases
from arachne.data.layout import as_pictures, picture_layout
from arachne.data.lazy.memmap import gather
from arachne.model.values import Array

LAYOUT_SAMPLE = 200
"""Inputs examined to tell pictures from tables."""

MAX_COLUMNS = 2000
"""A table with more columns than this is left to the finder of single values."""


def layout_of(array: Array) -> tuple[int, ...] | None:
    """Return the shape that makes pictures of the inputs of an array `(n, ...)`; None if they are not pictures."""
    if array.dtype.kind not in "fiub":
        return None
    return picture_layout(np.asarray(array[:: max(1, len(array) // LAYOUT_SAMPLE)][:LAYOUT_SAMPLE]))


def holds_tokens(array: Array) -> bool:
    """Whether an array `(n, ...)` holds token numbers: whole numbers that are not pictures."""
    return array.dtype.kind in "iu" and array.ndim == 2 and layout_of(array) is None


def feature_names(array: Array) -> tuple[str, ...]:
    """List the features of the inputs of an array `(n, ...)`."""
    layout = layout_of(array)
    if layout is not None:
        coloured = as_pictures(np.asarray(array[:1]), layout).shape[-1] >= 3
        return tuple(name for name in PICTURES if coloured or name != "colour")
    if holds_tokens(array):
        return tuple(TEXTS)
    if array.dtype.kind in "fiub" and int(np.prod(array.shape[1:])) <= MAX_COLUMNS:
        return tuple(f"column {number}" for number in range(int(np.prod(array.shape[1:]))))
    return ()


def measure_feature(name: str, values: Array, layout: tuple[int, ...] | None, unknown: int) -> Array:
    """Compute one feature of some inputs `(n, ...)`, float32 `(n,)`.

    Args:
        name: One of `feature_names`.
        values: The inputs.
        layout: The shape that makes pictures of them; None if they are not pictures.
        unknown: The token that stands for unknown words.
    """
    if name.startswith("column "):
        return values.reshape(len(values), -1)[:, int(name.removeprefix("column "))].astype(np.float32)
    if name == "unknown tokens":
        return np.asarray((values == unknown).sum(axis=1), dtype=np.float32)
    if name in TEXTS:
        return TEXTS[name](values).astype(np.float32)
    pictures = as_pictures(values, layout) if layout is not None else values
    return PICTURES[name](pictures).astype(np.float32)


def feature(cases: Cases, name: str, of_input: str, layout: tuple[int, ...] | None, unknown: int) -> Array:
    """Return one feature of whole inputs, computed once per input, float32 `(n,)`; arguments as for `Derived`."""
    return features(cases, (name,), of_input, layout, unknown)[:, 0]


def features(cases: Cases, names: Sequence[str], of_input: str, layout: tuple[int, ...] | None, unknown: int) -> Array:
    """Return several features of whole inputs, `(n, features)`; the inputs are read once for all of them."""
    read: dict[bytes, Array] = {}

    def values_of(rows: Array) -> Array:
        key = rows.tobytes()
        if key not in read:
            read[key] = np.asarray(gather(cases.arrays[of_input], rows))
        return read[key]

    def feature_values(name: str) -> Array:
        key = (of_input, name, unknown)
        return cases.cache.get(key, cases.rows, lambda rows: measure_feature(name, values_of(rows), layout, unknown))

    return np.stack([feature_values(name) for name in names], axis=1) if len(cases) else np.zeros((0, len(names)))


def _per_picture(pictures: Array) -> Array:
    flat: Array = pictures.reshape(len(pictures), -1)
    return flat


def _count_dead_lines(lines: Array) -> Array:
    """Count the constant lines between lines that vary, `(n,)`; `lines` is `(n, lines, values)`."""
    varies = (lines != lines[:, :, :1]).any(axis=2)
    before = np.maximum.accumulate(varies, axis=1)
    after = np.maximum.accumulate(varies[:, ::-1], axis=1)[:, ::-1]
    return np.asarray((~varies & before & after).sum(axis=1))


def _dead_rows(pictures: Array) -> Array:
    return np.asarray(
        np.max([_count_dead_lines(pictures[..., channel]) for channel in range(pictures.shape[-1])], axis=0)
    )


def _dead_columns(pictures: Array) -> Array:
    return _dead_rows(pictures.swapaxes(1, 2))


def _sharpness(pictures: Array) -> Array:
    steps = np.abs(np.diff(pictures.astype(np.float32, copy=False), axis=2))
    return np.asarray(_per_picture(steps).mean(axis=1))


def _flat_area(pictures: Array) -> Array:
    """Return the share of pixels that equal their right and lower neighbours and are not the darkest value."""
    here = pictures[:, :-1, :-1]
    same = (here == pictures[:, :-1, 1:]) & (here == pictures[:, 1:, :-1])
    lit = here > pictures.min(axis=(1, 2), keepdims=True)
    return np.asarray(_per_picture(same.all(axis=-1) & lit.any(axis=-1)).mean(axis=1))


def _bright_border(pictures: Array) -> Array:
    """Return the share of the border that has the picture's brightest value."""
    edges = (pictures[:, 0], pictures[:, -1], pictures[:, 1:-1, 0], pictures[:, 1:-1, -1])
    border = np.concatenate([_per_picture(edge) for edge in edges], axis=1)
    return np.asarray((border == _per_picture(pictures).max(axis=1, keepdims=True)).mean(axis=1))


def _moments(pictures: Array) -> tuple[Array, Array, Array]:
    """Return the weight of each pixel `(n, height, width)`, and its row and column from the centre of mass."""
    weight = pictures.astype(np.float64).mean(axis=-1)
    weight -= weight.min(axis=(1, 2), keepdims=True)
    weight /= np.maximum(weight.sum(axis=(1, 2), keepdims=True), 1e-12)
    rows, columns = (np.arange(size, dtype=np.float64) for size in weight.shape[1:])
    down = rows[None, :, None] - (weight.sum(axis=2) @ rows)[:, None, None]
    along = columns[None, None, :] - (weight.sum(axis=1) @ columns)[:, None, None]
    return weight, down, along


def _centre(axis: int) -> Callable[[Array], Array]:
    """Return the function that finds the row or the column of pictures' centres of mass."""
    return lambda pictures: -_moments(pictures)[axis + 1].reshape(len(pictures), -1)[:, 0]


def _tilt(pictures: Array) -> Array:
    """Return how much of the spread lies along the falling diagonal, from -1 to 1."""
    weight, down, along = _moments(pictures)
    spread = (weight * (down**2 + along**2)).sum(axis=(1, 2))
    return np.asarray(2 * (weight * down * along).sum(axis=(1, 2)) / np.maximum(spread, 1e-12))


def _uprightness(pictures: Array) -> Array:
    """Return how much more of the spread is upright than level, from -1 to 1."""
    weight, down, along = _moments(pictures)
    spread = (weight * (down**2 + along**2)).sum(axis=(1, 2))
    return np.asarray((weight * (down**2 - along**2)).sum(axis=(1, 2)) / np.maximum(spread, 1e-12))


PICTURES: Mapping[str, Callable[[Array], Array]] = {
    "brightness": lambda pictures: _per_picture(pictures).mean(axis=1, dtype=np.float64),
    "brightest value": lambda pictures: _per_picture(pictures).max(axis=1),
    "darkest value": lambda pictures: _per_picture(pictures).min(axis=1),
    "contrast": lambda pictures: _per_picture(pictures).std(axis=1),
    "sharpness": _sharpness,
    "colour": lambda pictures: (pictures[..., :3].max(axis=-1) - pictures[..., :3].min(axis=-1)).mean(axis=(1, 2)),
    "dead rows": _dead_rows,
    "dead columns": _dead_columns,
    "flat area": _flat_area,
    "bright border": _bright_border,
    "centre row": _centre(0),
    "centre column": _centre(1),
    "tilt": _tilt,
    "uprightness": _uprightness,
    "smoothness": lambda pictures: _per_picture(pictures).std(axis=1) / np.maximum(_sharpness(pictures), 1e-6),
}
"""Functions from pictures `(n, height, width, channels)` to one number each."""

TEXTS: Mapping[str, Callable[[Array], Array]] = {
    "length": lambda tokens: np.count_nonzero(tokens, axis=1),
    "unknown tokens": lambda tokens: np.count_nonzero(tokens, axis=1),
}
"""Functions from tokens `(n, steps)` to one number each; the unknown token is an option of the finder."""
