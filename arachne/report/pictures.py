"""Inputs as people can look at them: pictures as pictures, text as text, signals as curves, tables as rows.

What an array means is guessed from its shape and from how alike neighbouring values are, never from names; what is not
recognised is shown as numbers.
"""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from arachne.data.labelled import LabelledData
from arachne.data.layout import MIN_CORRELATION, as_pictures, neighbour_correlation, picture_layout
from arachne.data.readers.images import is_outside
from arachne.model.values import Array, batches
from arachne.text import number_text

LONGEST_TEXT = 400
AT_ONCE = 256
"""Pictures that are read at a time where many are averaged."""

MOST_VALUES = 12
MOST_POINTS = 120
LARGEST_SIDE = 128
FRAME_COLOUR = (255, 230, 0)
PNG_SIDE = 64
"""Pictures up to this size are stored without loss; larger ones, scaled down, as JPEG."""

NOT_SHOWN = "not shown: it lies outside the folder of the data"
"""Instead of a picture that a table or a link leads to: a page may go where that picture should not."""

Shown = dict[str, Any]
"""`{"kind": "image", "src", "width", "height"}`, `{"kind": "text", "text"}`, `{"kind": "values", "values"}` or
`{"kind": "curve", "curves"}`: JSON only."""


def show_inputs(data: LabelledData, rows: Sequence[int], frames: Array | None = None) -> list[Shown]:
    """Show the chosen rows of the data, each in the form that suits it.

    Args:
        data: The data.
        rows: Its rows to show.
        frames: A box to draw into each picture: left, top, right and bottom as shares, `(rows, 4)`, NaN for none.
    """
    if not len(rows):
        return []
    texts = data.texts
    if texts is not None:
        return [_text(str(texts[row])) for row in rows]
    array = _one_array(data)
    sample = picture_sample(array)
    if array.dtype.kind in "USO":
        return [_text(str(array[row])) for row in rows]
    layout = picture_layout(sample)
    if layout is not None:
        scale = _Scale.of(as_pictures(sample, layout))
        return [
            _text(NOT_SHOWN)
            if is_hidden(data, row)
            else _picture(
                scale, as_pictures(np.asarray(array[row])[None], layout)[0], None if frames is None else frames[number]
            )
            for number, row in enumerate(rows)
        ]
    if array.dtype.kind in "iu":
        return [_text(_tokens(np.asarray(array[row]))) for row in rows]
    if _is_signal(sample):
        return [_curve(np.asarray(array[row], dtype=np.float64)) for row in rows]
    return [_values(np.asarray(array[row]), data.value_names) for row in rows]


def show_pictures(pictures: Array, sample: Array) -> list[Shown]:
    """Pictures `(n, height, width, channels)`, in the range of values that a sample of the data has."""
    scale = _Scale.of(sample)
    return [_picture(scale, picture) for picture in pictures]


def picture_sample(array: Array) -> Array:
    """Two hundred inputs from all over the data."""
    return np.asarray(array[:: max(1, len(array) // 200)][:200])


def is_hidden(data: LabelledData, row: int) -> bool:
    """Whether an input is a picture that a table or a link leads to outside the folder of the data."""
    return data.names is not None and is_outside(data.names[row])


def _one_array(data: LabelledData) -> Array:
    if not isinstance(data.inputs, Mapping):
        return data.inputs
    arrays = list(data.inputs.values())
    pictures = [array for array in arrays if array.dtype.kind in "fiu" and picture_layout(np.asarray(array[:200]))]
    return (pictures or arrays)[0]


class _Scale:
    """From the values a model takes, normalised or not, to the 0 to 255 of a picture."""

    def __init__(self, low: Array, high: Array) -> None:
        self._low = low
        self._span = np.where(high > low, high - low, 1.0)

    @classmethod
    def of(cls, pictures: Array) -> _Scale:
        axes = (0, 1, 2)
        low, high = pictures.min(axis=axes).astype(np.float64), pictures.max(axis=axes).astype(np.float64)
        if pictures.dtype == np.uint8 or (low.min() >= 0 and 1 < high.max() <= 255):
            return cls(np.zeros_like(low), np.full_like(high, 255.0))
        if low.min() >= 0 and high.max() <= 1:
            return cls(np.zeros_like(low), np.ones_like(high))
        return cls(low, high)

    def bytes_of(self, picture: Array) -> Array:
        return np.clip(np.round((picture - self._low) / self._span * 255), 0, 255).astype(np.uint8)


def _picture(scale: _Scale, picture: Array, frame: Array | None = None) -> Shown:
    pixels = scale.bytes_of(np.nan_to_num(picture.astype(np.float64)))
    pixels = pixels[..., 0] if pixels.shape[-1] == 1 else pixels[..., :3]
    image = Image.fromarray(pixels)
    lossless = max(image.size) <= PNG_SIDE
    image.thumbnail((LARGEST_SIDE, LARGEST_SIDE))
    if frame is not None and not np.isnan(frame).any():
        image = draw_frame(image, frame)
    stream = io.BytesIO()
    if lossless:
        image.save(stream, "PNG", optimize=True)
    else:
        image.save(stream, "JPEG", quality=85)
    kind = "png" if lossless else "jpeg"
    source = f"data:image/{kind};base64,{base64.b64encode(stream.getvalue()).decode('ascii')}"
    return {"kind": "image", "src": source, "width": image.width, "height": image.height}


def draw_frame(image: Image.Image, frame: Array) -> Image.Image:
    """Draw a box, given as shares of the picture: a light line on a dark one, visible on any ground."""
    drawn = image.convert("RGB")
    ends = np.clip(np.asarray(frame, np.float64), 0, 1) * np.array([drawn.width, drawn.height] * 2)
    left, top, right, bottom = np.clip(np.round(ends), 0, np.array([drawn.width, drawn.height] * 2) - 1).tolist()
    pen = ImageDraw.Draw(drawn)
    pen.rectangle([left, top, max(left, right), max(top, bottom)], outline=(0, 0, 0), width=3)
    pen.rectangle([left + 1, top + 1, max(left + 1, right - 1), max(top + 1, bottom - 1)], outline=FRAME_COLOUR)
    return drawn


def difference_of_means(data: LabelledData, rows: Sequence[int], others: Sequence[int]) -> Shown | None:
    """Mean picture of some rows minus that of others: red where they are brighter, blue where darker.

    None where inputs are no pictures, or there are no rows on either side.
    """
    rows, others = ([row for row in chosen if not is_hidden(data, row)] for chosen in (rows, others))
    array = _one_array(data)
    layout = picture_layout(picture_sample(array)) if array.dtype.kind in "fiu" else None
    if layout is None or not len(rows) or not len(others):
        return None
    one, other = (_mean(array, np.sort(np.asarray(chosen)), layout) for chosen in (rows, others))
    difference = one - other
    strength = np.abs(difference) / max(float(np.abs(difference).max()), 1e-12)
    channels = (1 - strength * (difference < 0), 1 - strength, 1 - strength * (difference > 0))
    return _picture(_Scale(np.zeros(3), np.ones(3)), np.stack(channels, axis=-1))


def _mean(array: Array, rows: Array, layout: tuple[int, ...]) -> Array:
    """The mean of some pictures in grey, `(height, width)`, from a few of them at a time."""
    total: Array = np.zeros(())
    for part in batches(len(rows), AT_ONCE):
        total = total + as_pictures(np.asarray(array[rows[part]]), layout).mean(axis=3, dtype=np.float64).sum(axis=0)
    return total / len(rows)


def paint_map(signed: Array, grey: Array) -> Shown:
    """A map `(height, width)` of -1 to 1, red above 0 and blue below, over a picture of 0 to 1 that is hardly seen."""
    strength = np.clip(np.abs(signed), 0, 1)[..., None] ** 0.75  # so that small parts are seen too
    red, blue = np.array([0.75, 0.1, 0.05]), np.array([0.1, 0.3, 0.75])
    colour = np.where(signed[..., None] > 0, red, blue)
    ground = (0.97 - 0.25 * grey)[..., None] * np.ones(3)
    return _picture(_Scale(np.zeros(3), np.ones(3)), strength * colour + (1 - strength) * ground)


def _text(text: str) -> Shown:
    return {"kind": "text", "text": text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT - 1] + "…"}


def _tokens(ids: Array) -> str:
    flat = ids.ravel()
    used = flat[: int(np.flatnonzero(flat).max(initial=-1)) + 1]
    return "tokens " + " ".join(map(str, used.tolist()))


def _is_signal(sample: Array) -> bool:
    """Whether inputs are curves: long, and each value near the one before."""
    if sample.ndim == 2:
        return sample.shape[1] > 2 * MOST_VALUES and neighbour_correlation(sample, 1) > MIN_CORRELATION
    return sample.ndim == 3 and max(sample.shape[1:]) > 2 * MOST_VALUES


def _curve(values: Array) -> Shown:
    channels = values[None] if values.ndim == 1 else values
    if channels.shape[0] > channels.shape[1]:
        channels = channels.T
    step = max(1, math.ceil(channels.shape[1] / MOST_POINTS))
    return {"kind": "curve", "curves": np.nan_to_num(channels[:3, ::step]).round(4).tolist()}


def _values(values: Array, names: Sequence[str] | None) -> Shown:
    flat = values.ravel()
    shown = [
        [str(number) if names is None else names[number], number_text(float(value))]
        for number, value in enumerate(flat[:MOST_VALUES].tolist())
    ]
    return {"kind": "values", "values": shown, "more": max(0, flat.size - MOST_VALUES)}
