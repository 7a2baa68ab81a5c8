"""Read pictures and their masks: `images/` and `masks/` with the same names, or `NAME_mask.png` beside `NAME.jpg`."""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

from arachne.data.image_steps import place
from arachne.data.preprocess import Preprocess
from arachne.data.readers.boxes import picture_size
from arachne.data.readers.images import MAX_PICTURE_BYTES, SUFFIXES, load_pictures, picture_names, pictures_below
from arachne.data.readers.picture_bytes import check_bytes, check_size
from arachne.data.readers.raw import RawData
from arachne.data.readers.yolo import read_class_list
from arachne.errors import DataError
from arachne.io.reading import parse_errors_as, read_bytes
from arachne.model.values import Array

FOLDERS = (("images", "masks"), ("images", "annotations"), ("JPEGImages", "SegmentationClass"))
"""Names of the folders of pictures and of masks; masks that PASCAL VOC has are palettes of class numbers."""

ENDINGS = ("_mask", "-mask", ".mask")
"""How the name of a mask ends that lies beside its picture."""

FORMATS = ("PNG", "BMP", "TIFF", "GIF")
"""Formats that keep class numbers as they are; a JPEG does not."""

IGNORED = 255
"""The class number that fills what `letterbox` adds; it is what most data sets ignore."""


def find_masks(folder: Path) -> Mapping[Path, Path] | None:
    """Return the mask of each picture, in order, if this is a folder of pictures and masks.

    Raises:
        DataError: A picture has no mask, or a mask no picture.
    """
    for images, masks in FOLDERS:
        if os.path.isdir(folder / images) and os.path.isdir(folder / masks) and pictures_below(folder / masks):
            own = {path.relative_to(folder / masks).with_suffix(""): path for path in pictures_below(folder / masks)}
            pictures = pictures_below(folder / images)
            return _pair({path: path.relative_to(folder / images).with_suffix("") for path in pictures}, own, folder)
    files = sorted(
        path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES and not path.name.startswith(".")
    )
    own = {
        Path(path.stem.removesuffix(ending)): path for path in files for ending in ENDINGS if path.stem.endswith(ending)
    }
    if not own:
        return None
    taken = set(own.values())
    return _pair({path: Path(path.stem) for path in files if path not in taken}, own, folder)


def _pair(pictures: Mapping[Path, Path], masks: Mapping[Path, Path], folder: Path) -> Mapping[Path, Path]:
    """Return the mask of each picture; both are given by their names without endings."""
    if not pictures:
        raise DataError(f"'{folder}' has masks and no pictures")
    alone = [path for path, name in pictures.items() if name not in masks]
    if alone:
        raise DataError(f"'{alone[0]}' has no mask ({len(alone)} of {len(pictures)} pictures have none)")
    left = sorted(set(masks) - set(pictures.values()))
    if left:
        raise DataError(f"the mask '{masks[left[0]]}' has no picture ({len(left)} such masks in all)")
    return {path: masks[name] for path, name in pictures.items()}


def read_mask_folder(
    folder: Path, masks: Mapping[Path, Path], preprocess: Preprocess, limit: int | None, memory: int
) -> RawData:
    """Read pictures, and masks of class numbers `(n, height, width)` that follow resizing, cropping and padding.

    Masks that hold 0 and 255 and nothing else are of two classes. Class names come from `classes.txt` or the `names` of
    `data.yaml`.

    Raises:
        DataError: A file cannot be read, a mask has another size than its picture, or holds colours.
    """
    paths = list(masks)[:limit]
    head, rest = preprocess.split_images()
    inputs = load_pictures(paths, head, rest, folder, memory)
    labels = [_follow(_load_mask(masks[path], path), head) for path in paths]
    shapes = {label.shape for label in labels}
    if len(shapes) > 1:
        one, other = sorted(shapes)[:2]
        raise DataError(
            f"masks have different sizes, {one[0]}x{one[1]} and {other[0]}x{other[1]}", argument="preprocess"
        )
    stacked = np.stack(labels)
    if set(np.unique(stacked).tolist()) == {0, IGNORED}:
        stacked = (stacked > 0).astype(np.uint8)
    return RawData(
        inputs=inputs,
        labels=stacked,
        class_names=read_class_list([folder, folder.absolute().parent]),
        names=picture_names(paths, folder),
        preprocess=rest,
    )


def _load_mask(path: Path, picture: Path) -> Array:
    """Return class numbers `(height, width)`; a palette's numbers are taken, not its colours."""
    with parse_errors_as(f"mask '{path}'", DataError), warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        content = read_bytes(path, "mask", MAX_PICTURE_BYTES)
        check_bytes(content)
        try:
            opened = Image.open(io.BytesIO(content), formats=FORMATS)
        except UnidentifiedImageError as error:
            raise DataError(f"the mask '{path}' is no picture of {', '.join(FORMATS[:-1])} or {FORMATS[-1]}") from error
        with opened as image:
            check_size(*image.size, 4, len(content))
            found = np.asarray(image)
    if found.ndim == 3 and (found[..., :3] == found[..., :1]).all():
        found = found[..., 0]
    if found.ndim != 2 or found.dtype.kind not in "biu":
        raise DataError(
            f"the mask '{path}' has colours, expected one class number for each pixel, grey or as a palette"
        )
    if found.min(initial=0) < 0:
        raise DataError(f"the mask '{path}' has the class number {found.min()}, expected 0 or more")
    width, height = picture_size(picture)
    if found.shape != (height, width):
        raise DataError(
            f"the mask '{path}' is {found.shape[0]}x{found.shape[1]}, its picture '{picture.name}' {height}x{width}; "
            "expected one size"
        )
    return found.astype(np.uint8 if found.max(initial=0) <= IGNORED else np.int64)


def _follow(mask: Array, head: Preprocess) -> Array:
    """Resize, crop and pad a mask as its picture; each pixel gets the number of the nearest one."""
    for step in head.steps:
        if step.name in ("grey", "rgb"):
            continue
        at = place(step.name, [int(side) for side in step.value.split("x")], *mask.shape)
        scaled = _resize(mask, at.height, at.width)[max(0, -at.top) :, max(0, -at.left) :]
        mask = np.full((at.new_height, at.new_width), IGNORED, mask.dtype)
        shown = mask[max(0, at.top) :, max(0, at.left) :][: len(scaled), : scaled.shape[1]]
        shown[...] = scaled[: len(shown), : shown.shape[1]]
    return mask


def _resize(mask: Array, height: int, width: int) -> Array:
    """Resize by taking the middle one of the pixels that each new pixel covers."""
    rows, columns = (
        ((np.arange(new) + 0.5) * old / new).astype(np.int64)
        for new, old in ((height, mask.shape[0]), (width, mask.shape[1]))
    )
    found: Array = mask[rows[:, None], columns]
    return found
