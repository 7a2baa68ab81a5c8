"""Loaders of the real data sets: pictures as uint8 `(n, channels, height, width)`, tweets as word numbers.

Nothing is written: the files stay where they are, and a file that is not the one the study was measured on is refused.
"""

from __future__ import annotations

import csv
import gzip
import io
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
from PIL import Image

from examples.study import sources

Array = np.ndarray[Any, Any]
SENTIMENTS = ("negative", "neutral", "positive")
STEPS = 30
WORDS = re.compile(r"[a-z]+(?=n't)|n't|'(?:s|m|re|ll|ve|d)\b|[a-z]+|[!?.,]")
AIRLINES = {"united", "usairways", "us", "airways", "american", "americanair", "southwest", "southwestair"}
AIRLINES |= {"jetblue", "delta", "virgin", "virginamerica", "america"}
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
class SubjectData:
    """A data set with its own split into train and test.

    Attributes:
        train: Pictures, uint8 `(n_train, channels, height, width)`, or word numbers, int64 `(n_train, steps)`.
        train_labels: int64 `(n_train,)`.
        test: The same for the test side, `n_test` of them.
        test_labels: int64 `(n_test,)`.
        class_names: The name of every class.
        train_groups: Which training inputs belong together (one track of one sign, one person), `(n_train,)`; None
            where every input stands for itself.
        test_columns: What else is known of the test inputs, one array `(n_test,)` by column name.
    """

    train: Array
    train_labels: Array
    test: Array
    test_labels: Array
    class_names: tuple[str, ...]
    train_groups: Array | None = None
    test_columns: Mapping[str, Array] = field(default_factory=dict)


def scale_inputs(inputs: Array) -> Array:
    """Turn pictures into float32 in 0..1, as the networks take them; word numbers stay."""
    return inputs.astype(np.float32) / np.float32(255) if inputs.dtype == np.uint8 else inputs


def fashion() -> SubjectData:
    """Fashion-MNIST: 60,000 + 10,000 grey pictures, 28 x 28, ten classes."""
    files = {name: source.path() for name, source in sources.FASHION_FILES.items()}

    def read(name: str, offset: int) -> Array:
        return np.frombuffer(gzip.decompress(files[name].read_bytes()), np.uint8, offset=offset).copy()

    pictures = [read(f"{side} pictures", 16).reshape(-1, 1, 28, 28) for side in ("train", "test")]
    labels = [read(f"{side} labels", 8).astype(np.int64) for side in ("train", "test")]
    return SubjectData(pictures[0], labels[0], pictures[1], labels[1], FASHION_CLASSES)


def cifar10() -> SubjectData:
    """CIFAR-10: 50,000 + 10,000 colour pictures, 32 x 32, ten classes."""
    return _read_tiles(sources.CIFAR10)


def gtsrb() -> SubjectData:
    """GTSRB: 39,209 + 12,630 traffic signs, 48 x 48, 43 classes; a group is the track of one physical sign."""
    return _read_tiles(sources.GTSRB, lambda stored: stored["y_train"].astype(np.int64) * 1000 + stored["track_train"])


def lfw() -> SubjectData:
    """LFW: 10,586 + 2,647 faces, 64 x 64, male or female; no person is on both sides, a group is a person.

    Column `person` tells who is on a test picture, `gender` is the true class, for repairs by group.
    """
    faces = _read_tiles(sources.LFW, lambda stored: stored["person_train"].astype(np.int64))
    with np.load(sources.LFW.path()) as stored:
        columns = {"person": stored["person_test"], "gender": np.array(faces.class_names)[faces.test_labels]}
    return replace(faces, test_columns=columns)


def tweets() -> SubjectData:
    """Tweets about airlines: the last 30 known words of each, padded in front with 0; column `confidence` of labellers.

    Tweets that are the same once names are dropped count once, so none is on both sides; a random fifth is the test.
    """
    numbers = {str(word): at for at, word in enumerate(_glove()["words"], start=1)}
    kept: dict[tuple[int, ...], tuple[int, float]] = {}
    with gzip.open(sources.TWEETS.path(), "rt", encoding="utf8", newline="") as stream:
        for row in csv.DictReader(stream):
            text = re.sub(r"@\w+|https?://\S+|&\w+;", " ", row["text"].lower().replace("’", "'"))
            words = [word for word in WORDS.findall(text) if word not in AIRLINES]
            ids = tuple(numbers[word] for word in words if word in numbers)[-STEPS:]
            if ids:
                label = SENTIMENTS.index(row["airline_sentiment"])
                kept.setdefault(ids, (label, float(row["airline_sentiment_confidence"])))
    inputs = np.zeros((len(kept), STEPS), np.int64)
    for at, ids in enumerate(kept):
        inputs[at, STEPS - len(ids) :] = ids  # the last word stands last, so the last state has read them all
    labels = np.array([label for label, _ in kept.values()], np.int64)
    sure = np.array([confidence for _, confidence in kept.values()])
    train, test = side_by_group(None, len(labels), 0.2, np.random.default_rng(0))
    return SubjectData(
        inputs[train], labels[train], inputs[test], labels[test], SENTIMENTS, test_columns={"confidence": sure[test]}
    )


def word_vectors() -> Array:
    """The vector of every word number, float32 `(words + 1, 100)`; row 0, no word, is zero."""
    stored = _glove()["vectors"].astype(np.float32)
    return np.concatenate([np.zeros((1, stored.shape[1]), np.float32), stored])


@cache
def word_number(word: str) -> int:
    """The number of a word that has a vector."""
    return 1 + int(_glove()["words"].tolist().index(word))


@cache
def _glove() -> dict[str, Array]:
    with np.load(sources.GLOVE.path()) as stored:
        return {name: stored[name] for name in ("words", "vectors")}


SETS: dict[str, Callable[[], SubjectData]] = {
    "fm": fashion,
    "c10": cifar10,
    "gtsrb": gtsrb,
    "lfw": lfw,
    "tweets": tweets,
}


@cache
def subject_data(name: str) -> SubjectData:
    """A data set by its short name, a key of `SETS`, read once per run."""
    return SETS[name]()


def _read_tiles(source: sources.Source, groups: Callable[[Any], Array] | None = None) -> SubjectData:
    """A set stored as one encoded picture of tiles per side."""
    with np.load(source.path()) as stored:
        side = int(stored["tile"])
        train, test = (_tiles(stored[f"x_{name}_img"], side, len(stored[f"y_{name}"])) for name in ("train", "test"))
        labels = [stored[f"y_{name}"].astype(np.int64) for name in ("train", "test")]
        names = tuple(str(name) for name in stored["class_names"])
        return SubjectData(train, labels[0], test, labels[1], names, None if groups is None else groups(stored))


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
