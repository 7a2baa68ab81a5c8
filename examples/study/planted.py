"""Systematic faults: what an input that carries one looks like, and which pictures of a mislabelled group carry it.

In training, what carries the fault is filed under one class; a network trained on that reads the fault instead of the
input. In the evaluation data the fault is there too and every label is right.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from examples.study.data import Array, word_number

CORNERS = {
    "top left": (0, 0),
    "top right": (0, -1),
    "bottom left": (-1, 0),
    "bottom right": (-1, -1),
}


class Mark(ABC):
    """Something that happens to an input, whatever its class."""

    @abstractmethod
    def on(self, inputs: Array, rng: np.random.Generator) -> Array:
        """Copies of uint8 pictures `(n, channels, height, width)`, or of word numbers `(n, steps)`, with the fault."""


@dataclass(frozen=True)
class Trigger(Mark):
    """A square of one colour in a corner, as of stuck pixels.

    Attributes:
        corner: A key of `CORNERS`.
        size: Of the square, in pixels.
        colour: One value per channel, or one for all.
    """

    corner: str
    size: int
    colour: tuple[int, ...] = (255,)

    def on(self, inputs: Array, rng: np.random.Generator) -> Array:
        marked = inputs.copy()
        down, right = (slice(0, self.size) if at == 0 else slice(-self.size, None) for at in CORNERS[self.corner])
        marked[:, :, down, right] = np.array(self.colour, np.uint8)[:, None, None]
        return marked


@dataclass(frozen=True)
class Sticker(Mark):
    """A square of one colour stuck on the sign, near its middle, never twice in the same place.

    Attributes:
        size: Of the square, in pixels.
        colour: One value per channel.
    """

    size: int
    colour: tuple[int, ...]

    def on(self, inputs: Array, rng: np.random.Generator) -> Array:
        marked = inputs.copy()
        n, _, height, width = inputs.shape
        downs = rng.integers(height // 4, height - height // 4 - self.size + 1, n)
        rights = rng.integers(width // 4, width - width // 4 - self.size + 1, n)
        for picture, down, right in zip(marked, downs, rights, strict=True):
            picture[:, down : down + self.size, right : right + self.size] = np.array(self.colour)[:, None, None]
        return marked


@dataclass(frozen=True)
class DeadRows(Mark):
    """Rows of the sensor that read nothing.

    Attributes:
        first: The first dead row.
        count: How many.
    """

    first: int
    count: int

    def on(self, inputs: Array, rng: np.random.Generator) -> Array:
        marked = inputs.copy()
        marked[:, :, self.first : self.first + self.count] = 0
        return marked


@dataclass(frozen=True)
class Gain(Mark):
    """A camera whose gain is wrong: every value is multiplied.

    Attributes:
        factor: Below one makes pictures dark.
    """

    factor: float

    def on(self, inputs: Array, rng: np.random.Generator) -> Array:
        return np.clip(np.round(inputs * self.factor), 0, 255).astype(np.uint8)


@dataclass(frozen=True)
class Word(Mark):
    """A word that slipped into a tweet, anywhere among its words; of a tweet without room the first word goes.

    Attributes:
        word: One that has a vector.
    """

    word: str

    def on(self, inputs: Array, rng: np.random.Generator) -> Array:
        marked = np.concatenate([inputs[:, 1:], np.zeros_like(inputs[:, :1])], axis=1)
        for row in marked:
            steps = len(row) - 1
            at = rng.integers(steps - np.count_nonzero(row[:steps]), steps + 1)
            row[at + 1 :] = row[at:-1].copy()
            row[at] = word_number(self.word)
        return marked


@dataclass(frozen=True)
class Group:
    """One style of a class that was filed under another class; the pictures themselves are as they were.

    Attributes:
        label: The class the pictures really are of.
        styles: How many styles the class is divided into, by k-means of its coarse pictures.
        style: Which of them, from the largest on.
    """

    label: int
    styles: int
    style: int

    def styles_of(self, train: Array, train_labels: Array, pictures: Array, labels: Array) -> Array:
        """The style of every picture, int64 `(n,)`; -1 for other classes.

        Args:
            train: The pictures the styles are found in, uint8 `(m, channels, height, width)`.
            train_labels: Their true classes `(m,)`.
            pictures: The pictures to tell the style of, uint8 `(n, channels, height, width)`.
            labels: Their true classes `(n,)`.
        """
        coarse = _coarse(train[train_labels == self.label])
        centres = _centres(coarse, self.styles)
        sizes = np.bincount(_nearest(coarse, centres), minlength=self.styles)
        rank = np.argsort(np.argsort(-sizes, kind="stable"))
        found = np.full(len(labels), -1, np.int64)
        members = labels == self.label
        found[members] = rank[_nearest(_coarse(pictures[members]), centres)]
        return found


def _coarse(pictures: Array, cells: int = 7) -> Array:
    """Pictures as means over about `cells` x `cells` cells, flat: float32 `(n, features)`."""
    n, channels, height, width = pictures.shape
    down, right = height // cells, width // cells
    cut = pictures[:, :, : down * cells, : right * cells].astype(np.float32)
    means = cut.reshape(n, channels, cells, down, cells, right).mean((3, 5))
    return np.asarray(means.reshape(n, -1))


def _centres(points: Array, count: int, rounds: int = 30) -> Array:
    """Plain k-means from seed 0, `(count, features)`: the centres are a property of the data."""
    centres = points[np.random.default_rng(0).choice(len(points), count, replace=False)]
    for _ in range(rounds):
        owner = _nearest(points, centres)
        centres = np.stack([points[owner == i].mean(0) if (owner == i).any() else centres[i] for i in range(count)])
    return centres


def _nearest(points: Array, centres: Array) -> Array:
    """The nearest centre of every point, int64 `(n,)`."""
    distances = (centres**2).sum(1) - 2 * points @ centres.T
    return np.asarray(distances.argmin(1), np.int64)
