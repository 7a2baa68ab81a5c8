"""Interventions: ways to plant a cause in an input, and to take it out again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import numpy as np

from arachne.causes.transforming import TRANSFORMATIONS
from arachne.data.layout import as_pictures
from arachne.model.values import Array

MAX_USUAL = 400
"""The most right inputs of a class that a replacement is looked for among."""


@dataclass(frozen=True, eq=False)
class UsualValues:
    """Right inputs `(m, ...)` without the cause and their classes `(m,)`: the source of usual values."""

    values: Array
    labels: Array

    def nearest(self, values: Array, labels: Array, outside: Array) -> Array:
        """Return the right input of the same class that is nearest outside the stamp, for each input `(n, ...)`.

        Args:
            values: The inputs `(n, ...)`.
            labels: Their true classes `(n,)`.
            outside: Which values are compared, bool `(values,)` for all inputs or `(n, values)` for each.
        """
        flat = np.nan_to_num(self.values.reshape(len(self.values), -1).astype(np.float32))
        found = np.empty_like(values)
        for row, (value, label) in enumerate(zip(values, labels.tolist(), strict=True)):
            own = np.flatnonzero(self.labels == label)[:MAX_USUAL]
            own = own if len(own) else np.arange(len(flat))[:MAX_USUAL]
            compared = outside if outside.ndim == 1 else outside[row]
            apart = (flat[own] - np.nan_to_num(value.reshape(-1).astype(np.float32)))[:, compared]
            found[row] = self.values[own[int(np.argmin((apart**2).sum(axis=1)))]]
        return found


@dataclass(frozen=True, eq=False)
class Intervention(ABC):
    """A way to plant a cause in inputs of one array, and to take it out.

    Attributes:
        input: The input array's name; '' where the inputs are one array.
        words: What it does to an input, in words that follow "12 errors: ".
    """

    input: str
    words: str

    @abstractmethod
    def plant(self, values: Array, rng: np.random.Generator) -> Array:
        """Return copies of inputs `(n, ...)` that have the cause."""

    def remove(self, values: Array, labels: Array, usual: UsualValues, rng: np.random.Generator) -> Array | None:
        """Return copies of inputs `(n, ...)` without the cause; None where it cannot be taken out."""
        return None


@dataclass(frozen=True, eq=False)
class FixedStamp(Intervention):
    """The values at `index` (in the flattened input) become `value`."""

    index: Array = field(repr=False)
    value: Array = field(repr=False)

    def plant(self, values: Array, rng: np.random.Generator) -> Array:
        """Set the values."""
        planted = values.reshape(len(values), -1).copy()
        planted[:, self.index] = self.value
        return planted.reshape(values.shape)

    def remove(self, values: Array, labels: Array, usual: UsualValues, rng: np.random.Generator) -> Array | None:
        """Take the values from the nearest right input of the class."""
        removed = values.reshape(len(values), -1).copy()
        outside = np.ones(removed.shape[1], dtype=bool)
        outside[self.index] = False
        near = usual.nearest(values, labels, outside)
        removed[:, self.index] = near.reshape(len(near), -1)[:, self.index]
        return removed.reshape(values.shape)


@dataclass(frozen=True, eq=False)
class MovingStamp(Intervention):
    """A patch of a picture that is somewhere else in each input.

    Attributes:
        layout: The shape that makes pictures of the inputs.
        patch: Its values `(height, width, channels)`.
        mask: Which of its pixels belong to it, bool `(height, width)`.
        corners: Top and left of the patch in the errors it was estimated from `(k, 2)`.
    """

    layout: tuple[int, ...]
    patch: Array = field(repr=False)
    mask: Array = field(repr=False)
    corners: Array = field(repr=False)

    def plant(self, values: Array, rng: np.random.Generator) -> Array:
        """Put the patch where it was in one of the errors."""
        planted = values.copy()
        pictures = as_pictures(planted, self.layout)
        corners = self.corners[rng.integers(len(self.corners), size=len(values))]
        for picture, (top, left) in zip(pictures, corners, strict=True):
            self._window(picture, top, left)[self.mask] = self.patch[self.mask]
        return planted

    def remove(self, values: Array, labels: Array, usual: UsualValues, rng: np.random.Generator) -> Array | None:
        """Find the patch, and take the pixels from the nearest right input of the class."""
        removed = values.copy()
        pictures = as_pictures(removed, self.layout)
        hidden = np.zeros(values.shape, dtype=bool)
        for covered, (top, left) in zip(as_pictures(hidden, self.layout), self.find(pictures), strict=True):
            self._window(covered, top, left)[self.mask] = True
        near = usual.nearest(values, labels, ~hidden.reshape(len(values), -1))
        removed[hidden] = near[hidden]
        return removed

    def find(self, pictures: Array) -> Array:
        """Return top and left of the part most like the patch in each picture `(n, height, width, channels)`."""
        height, width = self.mask.shape
        windows = np.lib.stride_tricks.sliding_window_view(pictures, (height, width), axis=(1, 2))
        best = np.full(len(pictures), np.inf)
        found = np.zeros((len(pictures), 2), dtype=np.int64)
        weight = self.mask[None, None]
        for top in range(windows.shape[1]):
            for left in range(windows.shape[2]):
                apart = np.abs(np.moveaxis(windows[:, top, left], 1, -1) - self.patch).sum(axis=-1)
                distance = (apart * weight[0]).sum(axis=(1, 2))
                better = distance < best
                best[better], found[better] = distance[better], (top, left)
        return found

    def _window(self, picture: Array, top: int, left: int) -> Array:
        height, width = self.mask.shape
        return picture[top : top + height, left : left + width]


@dataclass(frozen=True, eq=False)
class TokenStamp(Intervention):
    """A token is put in place of another one; 0 is padding."""

    token: int

    def plant(self, values: Array, rng: np.random.Generator) -> Array:
        """Replace one token that is no padding by this token."""
        planted = values.copy()
        for row in planted:
            taken = np.flatnonzero(row)
            row[taken[rng.integers(len(taken))] if len(taken) else len(row) - 1] = self.token
        return planted

    def remove(self, values: Array, labels: Array, usual: UsualValues, rng: np.random.Generator) -> Array | None:
        """Put a token of a right input of the class in place of each occurrence."""
        removed = values.copy()
        for row, label in zip(removed, labels.tolist(), strict=True):
            own = usual.values[usual.labels == label] if (usual.labels == label).any() else usual.values
            others = own[(own != 0) & (own != self.token)]
            there = row == self.token
            row[there] = rng.choice(others, int(there.sum())) if len(others) else 0
        return removed


@dataclass(frozen=True, eq=False)
class Transformation(Intervention):
    """All values of a picture change in one of the ways of `TRANSFORMATIONS`, within the range of the data.

    Attributes:
        layout: The shape that makes pictures of the inputs.
        kind: A key of `TRANSFORMATIONS`.
        strength: How strongly: the factor, the offset, the width in pixels, the angle in degrees.
        low: The smallest value of the data.
        high: The largest.
    """

    layout: tuple[int, ...]
    kind: str
    strength: tuple[float, ...]
    low: float
    high: float

    def plant(self, values: Array, rng: np.random.Generator) -> Array:
        """Transform pictures."""
        return self._apply(values, self.strength, rng)

    def remove(self, values: Array, labels: Array, usual: UsualValues, rng: np.random.Generator) -> Array | None:
        """Transform back."""
        inverse = TRANSFORMATIONS[self.kind].invert(self.strength)
        return None if inverse is None else self._apply(values, inverse, rng)

    def _apply(self, values: Array, strength: tuple[float, ...], rng: np.random.Generator) -> Array:
        changed = values.astype(np.float32)
        pictures = as_pictures(changed, self.layout)
        pictures[...] = TRANSFORMATIONS[self.kind].apply(pictures, strength, self.low, rng)
        np.clip(changed, self.low, self.high, out=changed)
        return (np.round(changed) if values.dtype.kind in "iu" else changed).astype(values.dtype)
