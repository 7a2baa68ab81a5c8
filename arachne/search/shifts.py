"""How a layer's inputs differ when a fault happens: sums by fold and class, and differences of their means.

    own       for a class c:  √(k_c / k) (mean h of negatives of class c - mean h of right inputs of class c)
    read as   for a class b:  √(k_b / k) (mean h of negatives read as b - mean h of right inputs of class b)
    mean      the mean over negatives of (h - mean h of right inputs of the same class), 0 where that may be chance

with k the number of negatives. The sums are taken once; without any fold they follow by subtraction.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from arachne.model.values import Array, batches

MIN_T = 3.0
"""Entries of the mean that are fewer standard errors than this away from zero are left out."""

MAX_CLASSES = 64
"""How many classes of negatives are kept apart; the rest are one."""

MAX_OWN, MAX_READ_AS, MIN_READ_AS_SHARE = 12, 4, 0.1
"""How many differences of each kind there are at most, and the share of negatives that are read as a class."""

MAX_ADDED_BYTES = 8 << 20
"""The most bytes of float64 that are added up at a time."""


@dataclass(frozen=True, eq=False)
class Kinds:
    """Which inputs are compared, in a shape that sums can be taken over.

    Attributes:
        labels: True classes `(inputs,)`.
        read_as: What the original model says, `(inputs,)`.
        negative: bool `(inputs,)`.
        positive: bool `(inputs,)`.
        folds: The fold of each input, from 0 on, `(inputs,)`.
        count: How many folds there are.
    """

    labels: Array
    read_as: Array
    negative: Array
    positive: Array
    folds: Array
    count: int

    @property
    def own(self) -> Array:
        """The classes of negatives that are kept apart, the most frequent first."""
        return _most_frequent(self.labels[self.negative], MAX_CLASSES)

    @property
    def read(self) -> Array:
        """The classes that many negatives are read as, those with most of them first."""
        found = self.read_as[self.negative]
        least = max(1.0, MIN_READ_AS_SHARE * len(found))
        return np.array([one for one in _most_frequent(found, MAX_READ_AS) if np.sum(found == one) >= least], np.int64)


class Shifts:
    """Sums of what enters a layer, by fold and class.

    Args:
        kinds: Which inputs are compared.
        pieces: Rows, and what enters the layer for them, one vector `(width,)` each; every input once.
    """

    def __init__(self, kinds: Kinds, pieces: Iterable[tuple[slice, Array]]) -> None:
        self._own, self._read = kinds.own, kinds.read
        known = np.union1d(self._own, self._read)
        self._at = {int(one): number for number, one in enumerate(known)}
        self._groups, others = len(known), len(known)  # the last group of each kind: any other class
        group = np.array([self._at.get(int(label), others) for label in kinds.labels], np.int64)
        heard = np.array([self._at.get(int(one), others) for one in kinds.read_as], np.int64)
        size = others + 1
        codes = {
            "negative": (group, kinds.negative),
            "positive": (group, kinds.positive),
            "read": (heard, kinds.negative),
        }
        self._sums: dict[str, Array] = {}
        self._counts = {
            name: np.bincount((kinds.folds * size + code)[among], minlength=kinds.count * size).reshape(-1, size)
            for name, (code, among) in codes.items()
        }
        for rows, values in pieces:
            for name, (code, among) in codes.items():
                self._add(name, kinds.count * size, (kinds.folds * size + code)[rows], among[rows], values)
            own = kinds.negative[rows]
            squares = np.square(values[own], dtype=np.float64)
            self._add("squares", kinds.count, kinds.folds[rows][own], own[own], squares)
        self._sums = {name: sums.reshape(kinds.count, -1, sums.shape[1]) for name, sums in self._sums.items()}

    def _add(self, name: str, groups: int, codes: Array, among: Array, values: Array) -> None:
        """Add rows of values up by their codes, some columns at a time: products make them float64."""
        kept, sums = np.flatnonzero(among), self._sums.setdefault(name, np.zeros((groups, values.shape[1])))
        ones = np.ones(len(kept)), (codes[kept], np.arange(len(kept)))
        summing = sparse.csr_matrix(ones, shape=(groups, max(1, len(kept))))
        most = MAX_ADDED_BYTES // (8 * max(1, len(kept)))
        for columns in batches(values.shape[1] if len(kept) else 0, max(1, most)):
            sums[:, columns] += summing @ values[:, columns][kept]

    def own(self, without: int = -1) -> Array:
        """Return the differences to the own class, float64 `(width, classes)`."""
        return self._differences("negative", self._own[:MAX_OWN], without)

    def read_as(self, without: int = -1) -> Array:
        """Return the differences to the class that negatives are read as, float64 `(width, classes)`."""
        return self._differences("read", self._read, without)

    def mean(self, without: int = -1, min_t: float = MIN_T) -> Array:
        """Return the mean difference to the own class, float64 `(width,)`; 0 where it may well be chance."""
        sums, counts = self._leave_out("negative", without)
        total, squares = np.zeros((2, sums.shape[1]))
        n = counts.sum()
        for group in np.flatnonzero(counts):
            usual = self._usual(int(group), without)
            total += sums[group] - counts[group] * usual
            squares += counts[group] * usual * usual - 2 * usual * sums[group]
        if not n or not self._leave_out("positive", without)[1].any():
            return np.zeros_like(total)
        mean: Array = total / n
        squares += self._sums["squares"].sum(axis=(0, 1)) - (self._sums["squares"][without, 0] if without >= 0 else 0)
        if n > 1:
            variance = np.maximum(squares - n * mean * mean, 0) / (n - 1)
            mean[np.abs(mean) < min_t * np.sqrt(variance / n)] = 0
        return mean

    def count(self, without: int = -1) -> int:
        """Return the number of negatives."""
        return int(self._leave_out("negative", without)[1].sum())

    def _leave_out(self, name: str, without: int) -> tuple[Array, Array]:
        """Return sums `(groups, width)` and counts `(groups,)` without a fold."""
        sums, counts = self._sums[name], self._counts[name]
        if without < 0:
            return sums.sum(axis=0), counts.sum(axis=0)
        return sums.sum(axis=0) - sums[without], counts.sum(axis=0) - counts[without]

    def _usual(self, group: int, without: int) -> Array:
        """Return the mean over right inputs of a class; over all right inputs where the class has none."""
        sums, counts = self._leave_out("positive", without)
        return np.asarray(sums[group] / counts[group] if counts[group] else sums.sum(axis=0) / max(1, counts.sum()))

    def _differences(self, name: str, classes: Array, without: int) -> Array:
        sums, counts = self._leave_out(name, without)
        found = [np.zeros((0, sums.shape[1]))]
        for one in classes:
            group = self._at[int(one)]
            if counts[group]:
                difference = sums[group] / counts[group] - self._usual(group, without)
                found.append((counts[group] / counts.sum()) ** 0.5 * difference[None])
        return np.concatenate(found).T


def _most_frequent(classes: Array, most: int) -> Array:
    """Return the most frequent of some classes, the most frequent first."""
    found, counts = np.unique(classes, return_counts=True)
    return np.asarray(found[np.argsort(-counts, kind="stable")][:most], np.int64)
