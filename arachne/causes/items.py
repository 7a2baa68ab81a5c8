"""Things that are in an input or not, wherever they are: tokens of a text, colours that fill a part of a picture."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from arachne.values import Array

FILLED = 4
"""Pixels of one colour, with right and lower neighbours of the same, that make a colour fill a part of a picture."""


@dataclass(frozen=True, eq=False)
class Items:
    """Which items are in which of `n` inputs.

    Attributes:
        n: How many inputs.
        known: The items that are in any of them, ascending `(k,)`.
        hits: In how many inputs each is `(k,)`.
    """

    n: int
    known: Array
    hits: Array

    @classmethod
    def of_pairs(cls, n: int, rows: Array, items: Array) -> Items:
        """From pairs of input and item; a pair may come several times."""
        once = np.unique(np.stack([rows, items]), axis=1)[1] if len(rows) else items
        return cls(n, *np.unique(once, return_counts=True))

    @classmethod
    def of_tokens(cls, tokens: Array) -> Items:
        """The tokens of texts `(n, steps)`; 0 only fills."""
        rows = np.repeat(np.arange(len(tokens)), tokens.shape[1])
        items = tokens.ravel().astype(np.int64)
        return cls.of_pairs(len(tokens), rows[items != 0], items[items != 0])


@dataclass(frozen=True, eq=False)
class Colours:
    """The colours that fill parts of pictures: `rows` and `codes` name picture and colour of each pair, once."""

    rows: Array
    codes: Array
    table: Array

    def of(self, positions: Array) -> Items:
        """Those of some pictures."""
        wanted = np.zeros(max(int(self.rows.max(initial=-1)), int(positions.max(initial=-1))) + 1, dtype=bool)
        wanted[positions] = True
        hits = np.bincount(self.codes[wanted[self.rows]], minlength=len(self.table))
        known = np.flatnonzero(hits)
        return Items(len(positions), known, hits[known])

    def colour(self, code: int) -> tuple[float, ...]:
        """The values of a colour's channels."""
        return tuple(float(value) for value in self.table[code])


def filled_colours(pictures: Array) -> Colours:
    """Every colour that fills a part of a picture `(n, height, width, channels)`."""
    here = pictures[:, :-1, :-1]
    flat = (here == pictures[:, :-1, 1:]) & (here == pictures[:, 1:, :-1])
    # The darkest colour is background more often than not, and the most frequent one of all.
    flat &= here > pictures.min(axis=(1, 2, 3), keepdims=True)
    rows, down, along = np.nonzero(flat.all(axis=-1))
    colours = pictures[rows, down, along]
    _, first, codes = np.unique(_mixed(colours), return_index=True, return_inverse=True)
    pairs, counts = np.unique(rows * np.int64(max(1, len(first))) + codes, return_counts=True)
    pairs = pairs[counts >= FILLED]
    return Colours(pairs // max(1, len(first)), pairs % max(1, len(first)), colours[first])


def _mixed(colours: Array) -> Array:
    """One whole number for each colour `(n, channels)`; different colours get different ones, but for rare chance."""
    mixed = np.zeros(len(colours), dtype=np.uint64)
    for channel in range(colours.shape[1]):
        values = np.ascontiguousarray(colours[:, channel], dtype=np.float32).view(np.uint32)
        mixed = mixed * np.uint64(0x9E3779B97F4A7C15) + values.astype(np.uint64)
    return mixed


def strongest_item(errors: Items, right: Items, fewest: int) -> tuple[int | None, int]:
    """The item that errors have and right inputs do not, if any, and how many were compared."""
    if not len(errors.known):
        return None, 0
    elsewhere = np.zeros(len(errors.known), dtype=np.int64)
    if len(right.known):
        at = np.searchsorted(right.known, errors.known).clip(max=len(right.known) - 1)
        elsewhere = np.where(right.known[at] == errors.known, right.hits[at], 0)
    gain = gains(errors.hits, errors.n, elsewhere, right.n)
    gain[errors.hits < fewest] = 0
    best = int(np.argmax(gain))
    return (int(errors.known[best]) if gain[best] > 0 else None), len(errors.known)


def in_order(values: Array) -> Array:
    """The values of each column `(n, columns)` in ascending order, `(columns, n)`: each column lies in one piece.

    Missing values are last.
    """
    found = np.array(values.T, order="C")
    found.sort(axis=1)
    return found


def gains(hits: Array, n: int, others: Array, n_others: int) -> Array:
    """How much better shares of errors explain themselves than with the right inputs' shares (log likelihood ratio).

    0 where the errors do not have it more often.
    """
    share = np.clip(hits / n, 1e-9, 1 - 1e-9)
    other = np.clip((others + 0.5) / (n_others + 1), 1e-9, 1 - 1e-9)
    gain: Array = n * (share * np.log(share / other) + (1 - share) * np.log((1 - share) / (1 - other)))
    return np.where(share > other, gain, 0.0)
