"""Read pictures from a directory per class, or from a list of paths."""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, UnidentifiedImageError

from arachne.data.lazy.fit_memory import exceeds_memory
from arachne.data.preprocess import Preprocess
from arachne.data.readers.picture_bytes import MAX_PIXELS, check_bytes, check_size
from arachne.data.readers.raw import RawData
from arachne.errors import DataError
from arachne.io.reading import error_text, read_bytes
from arachne.model.lazy import LazyArray, Source, as_array
from arachne.model.values import Array

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".ppm", ".pgm", ".tif", ".tiff", ".webp", ".gif")
FORMATS = ("PNG", "JPEG", "BMP", "PPM", "TIFF", "WEBP", "GIF")
"""The only decoders that may run, whatever a file is called: Pillow has others that start programs."""

SHAPE_SAMPLE = 32
"""The pictures that are decoded to learn the shape of lazy ones."""

MAX_PICTURE_BYTES = 1 << 30
"""The largest picture file."""

FREE_DECODED_BYTES, MAX_DECODE_RATIO = 256 << 20, 250
"""Bytes that all pictures together may always decode to; beyond that, the largest ratio to the bytes of their files."""

SPLIT_NAMES = frozenset(
    {"train", "training", "val", "valid", "validation", "dev", "test", "testing", "eval", "holdout"}
)
"""Directory names that are parts of a data set rather than classes."""

PIXEL_MODES = ("L", "RGB", "I;16", "I;16B", "I", "F")


def read_image_folder(folder: Path, preprocess: Preprocess, limit: int | None, memory: int) -> RawData:
    """Read a directory for each class; files may be nested below it, and `folder` becomes a metadata column.

    Raises:
        DataError: There are no classes, no pictures, pictures outside the classes, or files that cannot be read.
    """
    classes = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    stray = sorted(path.name for path in folder.iterdir() if path.is_file() and path.suffix.lower() in SUFFIXES)
    if not classes:
        raise DataError(f"'{folder}' has no directories, expected one for each class")
    if stray:
        raise DataError(f"pictures in '{folder}' lie outside the class directories: {_first_five(stray)}")
    names = [path.name for path in classes]
    if set(map(str.lower, names)) <= SPLIT_NAMES and all(any(c.is_dir() for c in path.iterdir()) for path in classes):
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
    return RawData(
        inputs=load_pictures(paths, head, rest, folder, memory),
        labels=np.array(labels),
        known_names=names,
        names=picture_names(paths, folder),
        columns={"folder": np.array(nested)} if nested != labels else {},
        preprocess=rest,
    )


def load_pictures(paths: Sequence[Path], head: Preprocess, rest: Preprocess, folder: Path, memory: int) -> Array:
    """Load pictures as one array `(n, height, width, channels)`; a lazy one if it would exceed `memory`.

    Args:
        paths: The files.
        head: Steps done on each picture by itself.
        rest: The steps that follow, which may make them larger.
        folder: The folder that file names in messages are relative to.
        memory: The most bytes to hold.
    """
    first, _ = _decode(paths[0], head) if paths else (None, "")
    if first is None or not exceeds_memory(first[None], len(paths), rest, memory):
        return read_images(paths, head, folder)
    return as_array(LazyArray(Pictures(paths, head, folder)))


class Pictures(Source):
    """Pictures that are decoded when they are read.

    A sample gives the shape. If one picture of the sample is in colour, all grey ones become colour.

    Args:
        paths: The files.
        head: Steps done on each picture by itself.
        folder: The folder that file names in messages are relative to.
        stamps: Size and time of change of each file, int64 `(n, 2)`; -1 for files that were not read yet.
    """

    def __init__(self, paths: Sequence[Path], head: Preprocess, folder: Path, stamps: Array | None = None) -> None:
        self._paths, self._head, self._folder = paths, head, folder
        self._stamps = np.full((len(paths), 2), -1, np.int64) if stamps is None else stamps
        self.n = len(paths)
        some = np.unique(np.linspace(0, self.n - 1, SHAPE_SAMPLE).astype(np.int64))
        sample = read_images([paths[row] for row in some], head, folder)
        self.kinds = {"": (sample.shape[1:], sample.dtype)}

    def read(self, name: str, rows: Array) -> Array:
        shape, dtype = self.kinds[""]
        if not len(rows):
            return np.empty((0, *shape), dtype)
        paths = [self._paths[row] for row in rows]
        self._check(rows, paths)
        found = read_images(paths, self._head, self._folder)
        if found.shape[-1] == 1 and shape[-1] == 3:
            found = np.repeat(found, 3, axis=-1)
        if found.shape[1:] != shape or found.dtype != dtype:
            raise DataError(
                f"pictures are of different kinds ({_relative(self._paths[0], self._folder)} and others are "
                f"{_kind(shape, dtype)}, of those from {_relative(paths[0], self._folder)} on one is "
                f"{_kind(found.shape[1:], found.dtype)}); bring them to one, with the preprocessing 'resize=N rgb'",
                argument="preprocess",
            )
        return found

    def describe(self, rows: Array) -> dict[str, Any]:
        return {
            "kind": "pictures",
            "folder": str(self._folder.absolute()),
            "paths": [str(self._paths[row].absolute()) for row in rows],
            "stamps": self._stamps[rows].tolist(),
            "head": str(self._head),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Pictures:
        """Open pictures from the result of `describe`."""
        paths, stamps = list(map(Path, values["paths"])), np.asarray(values["stamps"], np.int64).reshape(-1, 2)
        return cls(paths, Preprocess.parse(values["head"]), Path(values["folder"]), stamps)

    def _check(self, rows: Array, paths: Sequence[Path]) -> None:
        """Record size and time of change of files when they are first read; refuse files that have changed since."""
        now = np.array([_stamp(path) for path in paths], np.int64)
        known = self._stamps[rows]
        new, gone = known[:, 0] < 0, now[:, 0] < 0
        changed = np.flatnonzero((now != known).any(axis=1) & ~new & ~gone)
        if len(changed):
            name = _relative(paths[changed[0]], self._folder)
            raise DataError(
                f"picture '{name}' was changed during the run; start again when nobody writes to it any more"
            )
        self._stamps[rows[new & ~gone]] = now[new & ~gone]


def _stamp(path: Path) -> tuple[int, int]:
    try:
        found = os.stat(path)
    except OSError:  # reading it will say why
        return -1, -1
    return found.st_size, found.st_mtime_ns


def _kind(shape: tuple[int, ...], dtype: np.dtype[Any]) -> str:
    return f"{shape[0]}x{shape[1]} with {shape[2]} channels of {dtype}"


def read_images(paths: Sequence[Path], head: Preprocess, folder: Path) -> Array:
    """Read pictures as one array `(n, height, width, channels)`, uint8 unless the files hold more.

    Args:
        paths: The files.
        head: Steps done on each picture by itself, which bring them to one size.
        folder: The folder that file names in messages are relative to.

    Raises:
        DataError: Files cannot be read, or pictures have different sizes.
    """
    images: list[Array] = []
    wrong: list[str] = []
    taken = packed = 0
    with warnings.catch_warnings(), ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        for path, (image, reason) in zip(paths, pool.map(lambda path: _decode(path, head), paths), strict=True):
            if image is None:
                wrong.append(f"{_relative(path, folder)} ({reason})")
                continue
            images.append(image)
            taken, packed = taken + image.nbytes, packed + path.stat().st_size
            if taken > max(FREE_DECODED_BYTES, MAX_DECODE_RATIO * packed):
                pool.shutdown(wait=False, cancel_futures=True)
                raise DataError(
                    f"the first {len(images):,} pictures of '{folder}' have {packed:,} bytes and decode to {taken:,}, "
                    f"over {MAX_DECODE_RATIO} times as many"
                )
    if wrong:
        raise DataError(f"{len(wrong)} of {len(paths)} files cannot be read as pictures: {_first_five(wrong)}")
    return stack_images(images, [_relative(path, folder) for path in paths])


def picture_names(paths: Sequence[Path], folder: Path) -> tuple[str, ...]:
    """Name pictures by their path below the folder, or by their real path if they are outside.

    A table or a link can lead to any picture of the machine. Those are read, but a report never shows them.
    """
    real = {parent: Path(os.path.realpath(parent)) for parent in {path.parent for path in paths}}
    top = Path(os.path.realpath(folder))
    names = []
    for path in paths:
        resolved = Path(os.path.realpath(path)) if path.is_symlink() else real[path.parent] / path.name
        if not resolved.is_relative_to(top):
            names.append(str(resolved))
        else:
            names.append(_relative(path, folder) if path.is_relative_to(folder) else str(resolved.relative_to(top)))
    return tuple(names)


def is_outside(name: str) -> bool:
    """Whether a picture with this name from `picture_names` is outside the folder of its data."""
    return os.path.isabs(name)


def pixels(image: Image.Image) -> Array:
    """Convert a picture to `(height, width, channels)`; palettes and transparency become plain colours."""
    if image.mode == "1":
        image = image.convert("L")
    array = np.asarray(image if image.mode in PIXEL_MODES else image.convert("RGB"))
    return array if array.ndim == 3 else array[..., None]


def stack_images(images: Sequence[Array], names: Sequence[str]) -> Array:
    """Stack pictures of one size into one array.

    Args:
        images: `(height, width, channels)` each.
        names: Their names in messages.
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


def _decode(path: Path, head: Preprocess) -> tuple[Array | None, str]:
    """Decode a picture to `(height, width, channels)`, or return None and the reason."""
    try:
        content = read_bytes(path, "picture", MAX_PICTURE_BYTES)
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
    text = error_text(error).removeprefix(f"picture '{path}' ").removeprefix(f"cannot read picture '{path}': ")
    return "truncated" if "truncated" in text.lower() else text


def pictures_below(directory: Path) -> list[Path]:
    """List all pictures below a directory, sorted; hidden files and other endings are left out."""
    found = []
    for parent, folders, files in os.walk(directory):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [Path(parent) / name for name in files if not name.startswith(".") and _is_picture(name)]
    return sorted(found)


def _is_picture(name: str) -> bool:
    return Path(name).suffix.lower() in SUFFIXES


def _relative(path: Path, folder: Path) -> str:
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)


def _first_five(items: Sequence[str]) -> str:
    return ", ".join(items[:5]) + (", …" if len(items) > 5 else "")
