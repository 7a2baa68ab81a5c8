"""Pictures with boxes: what the readers of YOLO folders and COCO files share."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from arachne.data.image_steps import place
from arachne.data.preprocess import Preprocess
from arachne.data.readers.images import FORMATS, load_pictures, picture_names
from arachne.data.readers.raw import RawData
from arachne.errors import DataError
from arachne.io.reading import ordinary_file, parse_errors_as
from arachne.model.values import Array
from arachne.tasks.detection.boxes import BOX, CLASS, COLUMNS, pad_rows

MARGIN = 0.01
"""The share of a picture by which a box may be outside it; others round, and a box is cut off at the edge."""

MOST_LABEL_BYTES = 1 << 30
"""The most bytes of all labels: every picture has as many rows as the one with the most boxes."""


@dataclass(frozen=True)
class LabelledPicture:
    """A picture and its boxes.

    Attributes:
        path: The file.
        boxes: The class (from 0), the centre, width and height as shares of the picture, of each box.
    """

    path: Path
    boxes: Sequence[tuple[int, float, float, float, float]]


def check_box(box: Sequence[float], where: str) -> tuple[float, float, float, float]:
    """Return centre and size of a box that lies in its picture, cut off at the edge.

    Args:
        box: Centre and size as shares of the picture.
        where: Names the box in messages.

    Raises:
        DataError: It has no size, or is outside.
    """
    x, y, width, height = box
    if not all(map(math.isfinite, box)) or width <= 0 or height <= 0:
        raise DataError(f"{where} has a width of {width:g} and a height of {height:g}, expected numbers above 0")
    left, top, right, bottom = x - width / 2, y - height / 2, x + width / 2, y + height / 2
    if min(left, top) < -MARGIN or max(right, bottom) > 1 + MARGIN:
        raise DataError(
            f"{where} is outside its picture: it goes from {left:.3g}, {top:.3g} to {right:.3g}, {bottom:.3g}, "
            "expected shares of width and height between 0 and 1"
        )
    left, top, right, bottom = max(left, 0.0), max(top, 0.0), min(right, 1.0), min(bottom, 1.0)
    return (left + right) / 2, (top + bottom) / 2, right - left, bottom - top


def load_labelled(
    pictures: Sequence[LabelledPicture],
    class_names: tuple[str, ...] | None,
    folder: Path,
    preprocess: Preprocess,
    memory: int,
) -> RawData:
    """Load pictures with their boxes, which follow the steps that resize, crop or pad pictures.

    Labels are the rows that `arachne.tasks.detection.boxes` describes, `(n, most, COLUMNS)`.

    Args:
        pictures: In order.
        class_names: The names of the classes in order, if known.
        folder: The folder that file names are relative to.
        preprocess: The steps.
        memory: The most bytes of pictures to hold.

    Raises:
        DataError: A picture is missing or cannot be read, or one has far too many boxes.
    """
    most = max((len(picture.boxes) for picture in pictures), default=0)
    if most * len(pictures) * COLUMNS * 8 > MOST_LABEL_BYTES:
        path = next(picture.path for picture in pictures if len(picture.boxes) == most)
        raise DataError(f"'{path}' has {most:,} boxes, too many to hold as many for each of {len(pictures):,} pictures")
    head, rest = preprocess.split_images()
    rows = [_rows(picture, head) for picture in pictures]
    paths = [picture.path for picture in pictures]
    return RawData(
        inputs=load_pictures(paths, head, rest, folder, memory),
        labels=pad_rows(rows),
        class_names=class_names,
        names=picture_names(paths, folder),
        preprocess=rest,
    )


def _rows(picture: LabelledPicture, head: Preprocess) -> Array:
    """Return the label rows of a picture `(k, COLUMNS)`, moved along with its pixels."""
    found = np.zeros((len(picture.boxes), COLUMNS))
    for row, (number, *box) in zip(found, picture.boxes, strict=True):
        row[CLASS], row[BOX] = number + 1, box
    steps = [step for step in head.steps if step.name in ("resize", "shorter", "crop", "letterbox")]
    if not len(found) or all(step.name in ("resize", "shorter") for step in steps):
        return found
    width, height = picture_size(picture.path)
    for step in steps:
        at = place(step.name, [int(side) for side in step.value.split("x")], height, width)
        scale, corner, new = (at.width, at.height), (at.left, at.top), (at.new_width, at.new_height)
        if scale != new:
            ends = ((found[:, 1:3] + half * found[:, 3:5] / 2) * scale + corner for half in (-1, 1))
            low, high = (np.clip(one, 0, new) / new for one in ends)
            found[:, 1:3], found[:, 3:5] = (low + high) / 2, high - low
        width, height = new
    kept: Array = found[(found[:, 3] > 0) & (found[:, 4] > 0)]
    return kept


def picture_size(path: Path) -> tuple[int, int]:
    """Return width and height that a picture file tells, without decoding it.

    Raises:
        DataError: The file is missing, or no picture.
    """
    ordinary_file(path, "picture", DataError)
    with parse_errors_as(f"picture '{path}'", DataError), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with Image.open(path, formats=FORMATS) as image:
            return image.size
