"""Items that an input contains or not, anywhere in it: tokens of a text, colours that fill a part of a picture."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from arachne.model.values import Array

MIN_FILLED_PIXELS = 4
"""The fewest pixels, each with right and lower neighbours of the same colour, that make a filled part."""


@dataclass(frozen=True, eq=False)
class Items:
    """How many of `n` inputs contain each item.

    Attributes:
        n: How many inputs.
        known: The items that occur, ascending `(k,)`.
        hits: The number of inputs that contain each `(k,)`.
    """

    n: int
    known: Array
    hits: Array

    @classmethod
    def of_pairs(cls, n: int, rows: Array, items: Array) -> Items:
        """Count pairs of input and item; a pair that occurs several times counts once."""
        once = np.unique(np.stack([rows, items]), axis=1)[1] if len(rows) else items
        return cls(n, *np.unique(once, return_counts=True))

    @classmethod
    def of_tokens(cls, tokens: Array) -> Items:
        """Count the tokens of texts `(n, steps)`; 0 is padding."""
        rows = np.repeat(np.arange(len(tokens)), tokens.shape[1])
        items = tokens.ravel().astype(np.int64)
        return cls.of_pairs(len(tokens), rows[items != 0], items[items != 0])


@dataclass(frozen=True, eq=False)
class Colours:
    """The colours that fill parts of pictures: `rows` and `codes` are the picture and colour of each pair."""

    rows: Array
    codes: Array
    table: Array

    def of(self, positions: Array) -> Items:
        """Count the colours of some pictures."""
        wanted = np.zeros(max(int(self.rows.max(initial=-1)), int(positions.max(initial=-1))) + 1, dtype=bool)
        wanted[positions] = True
        hits = np.bincount(self.codes[wanted[self.rows]], minlength=len(self.table))
        known = np.flatnonzero(hits)
        return Items(len(positions), known, hits[known])

    def colour(self, code: int) -> tuple[float, ...]:
        """Return the values of a colour's channels."""
        return tuple(float(value) for value in self.table[code])


def filled_colours(pictures: Array) -> Colours:
    """Find every colour that fills a part of a picture `(n, height, width, channels)`."""
    here = pictures[:, :-1, :-1]
    flat = (here == pictures[:, :-1, 1:]) & (here == pictures[:, 1:, :-1])
    # The darkest colour is background more often than not, and the most frequent one of all.
    flat &= here > pictures.min(axis=(1, 2, 3), keepdims=True)
    rows, down, along = np.nonzero(flat.all(axis=-1))
    colours = pictures[rows, down, along]
    _, first, codes = np.unique(_colour_codes(colours), return_index=True, return_inverse=True)
    pairs, counts = np.unique(rows * np.int64(max(1, len(first))) + codes, return_counts=True)
    pairs = pairs[counts >= MIN_FILLED_PIXELS]
    return Colours(pairs // max(1, len(first)), pairs % max(1, len(first)), colours[first])


def _colour_codes(colours: Array) -> Array:
    """Hash each colour `(n, channels)` to one whole number; collisions are very rare."""
    codes = np.zeros(len(colours), dtype=np.uint64)
    for channel in range(colours.shape[1]):
        values = np.ascontiguousarray(colours[:, channel], dtype=np.float32).view(np.uint32)
        codes = codes * np.uint64(0x9E3779B97F4A7C15) + values.astype(np.uint64)
    return codes


def strongest_item(errors: Items, right: Items, fewest: int) -> tuple[int | None, int]:
    """Find the item that most errors and fewest right inputs contain, if any; also return how many were compared."""
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


def sort_columns(values: Array) -> Array:
    """Sort the values of each column `(n, columns)`, and return them contiguously by column `(columns, n)`.

    Missing values are last.
    """
    found = np.array(values.T, order="C")
    found.sort(axis=1)
    return found


def gains(hits: Array, n: int, others: Array, n_others: int) -> Array:
    """Return the log likelihood ratio of the errors' shares against the shares of right inputs.

    It is 0 where the errors do not have the larger share.
    """
    share = np.clip(hits / n, 1e-9, 1 - 1e-9)
    other = np.clip((others + 0.5) / (n_others + 1), 1e-9, 1 - 1e-9)
    gain: Array = n * (share * np.log(share / other) + (1 - share) * np.log((1 - share) / (1 - other)))
    return np.where(share > other, gain, 0.0)
