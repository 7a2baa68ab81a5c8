"""Loaders of the real data sets. Pictures come as uint8 `(n, channels, height, width)`, channels RGB or grey.

Nothing is written: the files stay where they are, and a file that is not the one the study was measured on is refused.
"""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from PIL import Image

from examples.study import sources

Array = np.ndarray[Any, Any]
FASHION_CLASSES = (
    "T-shirt",
    "trouser",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "ankle boot",
)


@dataclass(frozen=True, eq=False)
class PictureSet:
    """A data set of pictures with its own split into train and test.

    Attributes:
        train: uint8 `(n_train, channels, height, width)`.
        train_labels: int64 `(n_train,)`.
        test: uint8 `(n_test, channels, height, width)`.
        test_labels: int64 `(n_test,)`.
        class_names: The name of every class.
        train_groups: Which training pictures belong together (one track of one sign, one person), `(n_train,)`; None
            where every picture stands for itself.
    """

    train: Array
    train_labels: Array
    test: Array
    test_labels: Array
    class_names: tuple[str, ...]
    train_groups: Array | None = None


def scaled(pictures: Array) -> Array:
    """What the networks take: float32 in 0..1."""
    return pictures.astype(np.float32) / np.float32(255)


def fashion() -> PictureSet:
    """Fashion-MNIST: 60,000 + 10,000 grey pictures, 28 x 28, ten classes."""
    files = {name: source.path() for name, source in sources.FASHION_FILES.items()}

    def read(name: str, offset: int) -> Array:
        return np.frombuffer(gzip.decompress(files[name].read_bytes()), np.uint8, offset=offset).copy()

    pictures = [read(f"{side} pictures", 16).reshape(-1, 1, 28, 28) for side in ("train", "test")]
    labels = [read(f"{side} labels", 8).astype(np.int64) for side in ("train", "test")]
    return PictureSet(pictures[0], labels[0], pictures[1], labels[1], FASHION_CLASSES)


def cifar10() -> PictureSet:
    """CIFAR-10: 50,000 + 10,000 colour pictures, 32 x 32, ten classes."""
    return _tiled(sources.CIFAR10)


def gtsrb() -> PictureSet:
    """GTSRB: 39,209 + 12,630 traffic signs, 48 x 48, 43 classes; a group is the track of one physical sign."""
    return _tiled(sources.GTSRB, lambda stored: stored["y_train"].astype(np.int64) * 1000 + stored["track_train"])


def lfw() -> PictureSet:
    """LFW: 10,586 + 2,647 faces, 64 x 64, male or female; no person is on both sides, a group is a person."""
    return _tiled(sources.LFW, lambda stored: stored["person_train"].astype(np.int64))


SETS: dict[str, Callable[[], PictureSet]] = {"fm": fashion, "c10": cifar10, "gtsrb": gtsrb, "lfw": lfw}


@cache
def pictures(name: str) -> PictureSet:
    """A data set by its short name, read once per run: `fm`, `c10`, `gtsrb` or `lfw`."""
    return SETS[name]()


def _tiled(source: sources.Source, groups: Callable[[Any], Array] | None = None) -> PictureSet:
    """A set stored as one encoded picture of tiles per side."""
    with np.load(source.path()) as stored:
        side = int(stored["tile"])
        train, test = (_tiles(stored[f"x_{name}_img"], side, len(stored[f"y_{name}"])) for name in ("train", "test"))
        labels = [stored[f"y_{name}"].astype(np.int64) for name in ("train", "test")]
        names = tuple(str(name) for name in stored["class_names"])
        return PictureSet(train, labels[0], test, labels[1], names, None if groups is None else groups(stored))


def _tiles(encoded: Array, side: int, count: int) -> Array:
    """The first `count` tiles of an encoded picture, row by row: uint8 `(count, 3, side, side)`."""
    limit, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None  # a whole data set is one picture
    try:
        with Image.open(io.BytesIO(encoded.tobytes())) as opened:
            sheet = np.asarray(opened.convert("RGB"))
    finally:
        Image.MAX_IMAGE_PIXELS = limit
    rows, columns = sheet.shape[0] // side, sheet.shape[1] // side
    grid = sheet.reshape(rows, side, columns, side, 3).transpose(0, 2, 4, 1, 3)
    return np.ascontiguousarray(grid.reshape(-1, 3, side, side)[:count])


def side_by_group(groups: Array | None, count: int, share: float, rng: np.random.Generator) -> tuple[Array, Array]:
    """Row numbers of the kept part and of a part of about `share` aside, no group on both sides.

    Args:
        groups: `(count,)`, or None where every row stands for itself.
        count: How many rows there are.
        share: The share of rows to set aside.
        rng: Draws the groups.
    """
    names, sizes = np.unique(np.arange(count) if groups is None else groups, return_counts=True)
    order = rng.permutation(len(names))
    filled = np.cumsum(sizes[order])
    aside = names[order[filled <= round(share * count)]]
    chosen = np.isin(np.arange(count) if groups is None else groups, aside)
    return np.flatnonzero(~chosen), np.flatnonzero(chosen)
