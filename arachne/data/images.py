"""Pictures from files: a directory per class, or a list of paths."""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

from arachne.data.found import Found
from arachne.data.picture_bytes import MAX_PIXELS, check_bytes, check_size
from arachne.data.preprocess import Preprocess
from arachne.errors import DataError
from arachne.reading import read_bytes, told
from arachne.values import Array

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".ppm", ".pgm", ".tif", ".tiff", ".webp", ".gif")
FORMATS = ("PNG", "JPEG", "BMP", "PPM", "TIFF", "WEBP", "GIF")
"""The decoders that may run, whatever a file is called: Pillow has others that start programs."""

LARGEST = 1 << 30
"""More bytes than this are no picture."""

ROOM, RATIO = 256 << 20, 250
"""Bytes all pictures together may always take, and how many times the bytes of their files beyond that."""

SPLITS = frozenset({"train", "training", "val", "valid", "validation", "dev", "test", "testing", "eval", "holdout"})
"""Directory names that stand for parts of a data set rather than for classes."""

KEPT_MODES = ("L", "RGB", "I;16", "I;16B", "I", "F")


def read_image_folder(folder: Path, preprocess: Preprocess, limit: int | None) -> Found:
    """A directory for each class; below it files may be nested, and `folder` becomes a metadata column.

    Raises:
        DataError: No classes, no pictures, pictures outside the classes, or files that cannot be read.
    """
    classes = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    stray = sorted(path.name for path in folder.iterdir() if path.is_file() and path.suffix.lower() in SUFFIXES)
    if not classes:
        raise DataError(f"'{folder}' has no directories, expected one for each class")
    if stray:
        raise DataError(f"pictures in '{folder}' lie outside the class directories: {_first(stray)}")
    names = [path.name for path in classes]
    if set(map(str.lower, names)) <= SPLITS and all(any(c.is_dir() for c in path.iterdir()) for path in classes):
        raise DataError(f"'{folder}' holds parts of a data set ({', '.join(names)}); name one, as in '{classes[0]}'")
    paths: list[Path] = []
    labels: list[str] = []
    for directory in classes:
        files = pictures_below(directory)
        paths += files
        labels += [directory.name] * len(files)
    if not paths:
        raise DataError(f"no pictures below '{folder}'; known endings: {', '.join(SUFFIXES)}")
    paths, labels = paths[:limit], labels[:limit]
    nested = [str(path.parent.relative_to(folder)) for path in paths]
    head, rest = preprocess.split_images()
    return Found(
        inputs=read_images(paths, head, folder),
        labels=np.array(labels),
        known_names=names,
        names=picture_names(paths, folder),
        columns={"folder": np.array(nested)} if nested != labels else {},
        preprocess=rest,
    )


def read_images(paths: Sequence[Path], head: Preprocess, folder: Path) -> Array:
    """Pictures as one array `(n, height, width, channels)`, uint8 unless the files hold more.

    Args:
        paths: The files.
        head: Steps done on each picture by itself, so that they come to one size.
        folder: What file names in messages are relative to.

    Raises:
        DataError: Files that cannot be read, the first five by name, or pictures of different sizes.
    """
    images: list[Array] = []
    wrong: list[str] = []
    taken = packed = 0
    with warnings.catch_warnings(), ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        for path, (image, reason) in zip(paths, pool.map(lambda path: _decoded(path, head), paths), strict=True):
            if image is None:
                wrong.append(f"{_relative(path, folder)} ({reason})")
                continue
            images.append(image)
            taken, packed = taken + image.nbytes, packed + path.stat().st_size
            if taken > max(ROOM, RATIO * packed):
                pool.shutdown(wait=False, cancel_futures=True)
                raise DataError(
                    f"the first {len(images):,} pictures of '{folder}' have {packed:,} bytes and decode to {taken:,}, "
                    f"over {RATIO} times as many"
                )
    if wrong:
        raise DataError(f"{len(wrong)} of {len(paths)} files cannot be read as pictures: {_first(wrong)}")
    return stacked(images, [_relative(path, folder) for path in paths])


def picture_names(paths: Sequence[Path], folder: Path) -> tuple[str, ...]:
    """What pictures are called: by their path below the folder, or by where they really lie if that is elsewhere.

    A table or a link can lead to any picture of the machine. Those are read, but a report never shows them.
    """
    real = {parent: Path(os.path.realpath(parent)) for parent in {path.parent for path in paths}}
    top = Path(os.path.realpath(folder))
    names = []
    for path in paths:
        place = Path(os.path.realpath(path)) if path.is_symlink() else real[path.parent] / path.name
        if not place.is_relative_to(top):
            names.append(str(place))
        else:
            names.append(_relative(path, folder) if path.is_relative_to(folder) else str(place.relative_to(top)))
    return tuple(names)


def is_outside(name: str) -> bool:
    """Whether a picture of this name, as `picture_names` gives it, lies outside the folder of its data."""
    return os.path.isabs(name)


def pixels(image: Image.Image) -> Array:
    """A picture as `(height, width, channels)`; palettes and transparency become plain colours."""
    if image.mode == "1":
        image = image.convert("L")
    array = np.asarray(image if image.mode in KEPT_MODES else image.convert("RGB"))
    return array if array.ndim == 3 else array[..., None]


def stacked(images: Sequence[Array], names: Sequence[str]) -> Array:
    """Pictures of one size as one array.

    Args:
        images: `(height, width, channels)` each.
        names: What to call them in a message.
    """
    if {image.shape[2] for image in images} == {1, 3}:  # grey pictures among colour ones become colour
        images = [np.repeat(image, 3, axis=2) if image.shape[2] == 1 else image for image in images]
    first = images[0]
    for name, image in zip(names, images, strict=True):
        if image.shape[:2] != first.shape[:2]:
            one, other = (f"{shape[0]}x{shape[1]}" for shape in (first.shape, image.shape))
            raise DataError(
                f"pictures have different sizes ({names[0]} is {one}, {name} is {other}); "
                "bring them to one size with the preprocessing 'resize=N'",
                argument="preprocess",
            )
        if image.dtype != first.dtype or image.shape != first.shape:
            raise DataError(f"pictures are of different kinds ({names[0]} is {first.dtype}, {name} is {image.dtype})")
    return np.stack(images)


def _decoded(path: Path, head: Preprocess) -> tuple[Array | None, str]:
    """A picture `(height, width, channels)`, or None and the reason."""
    try:
        content = read_bytes(path, "picture", LARGEST)
        check_bytes(content)
        with Image.open(io.BytesIO(content), formats=FORMATS) as image:
            check_size(*image.size, 1 if image.mode in ("1", "L", "P") else 4, len(content))
            picture = pixels(image)
    except (Image.DecompressionBombWarning, Image.DecompressionBombError):
        return None, f"more than {MAX_PIXELS:,} pixels"
    except Exception as error:  # Pillow's decoders raise anything on broken files
        return None, _reason(error, path)
    return np.asarray(head(picture[None]))[0], ""


def _reason(error: Exception, path: Path) -> str:
    if isinstance(error, UnidentifiedImageError):
        return "not a picture"
    text = told(error).removeprefix(f"picture '{path}' ").removeprefix(f"cannot read picture '{path}': ")
    return "truncated" if "truncated" in text.lower() else text


def pictures_below(directory: Path) -> list[Path]:
    """All pictures below a directory, sorted; hidden files and other endings are left out."""
    found = []
    for parent, folders, files in os.walk(directory):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [Path(parent) / name for name in files if not name.startswith(".") and _is_picture(name)]
    return sorted(found)


def _is_picture(name: str) -> bool:
    return Path(name).suffix.lower() in SUFFIXES


def _relative(path: Path, folder: Path) -> str:
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)


def _first(items: Sequence[str]) -> str:
    return ", ".join(items[:5]) + (", …" if len(items) > 5 else "")
