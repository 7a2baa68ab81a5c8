"""The direction in which a fault enters a layer, and the smallest change of the layer that takes it out.

For a dense layer z = W h + b, with S the second moments of what enters it for inputs that are right, n its width:

    ρ = RIDGE trace(S) / n      R = (S + ρ I)⁻¹
    μ = mean over negatives of (h - mean h of right inputs of the same class)
    ΔW = -f (W μ)(R μ)ᵀ / (μᵀ R μ)

At f = 1 the layer no longer sees μ, and of all changes of which that is true this one moves z least where the model is
right (in mean squares, with the ridge).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from arachne.model.values import Array, batches

RIDGE = 0.03
"""The ridge, in mean second moments; anything from 0.03 to 0.3 does about the same."""

MIN_T = 3.0
"""Entries of the direction whose mean is fewer standard errors than this away from zero are left out."""

MAX_MOMENT_ROWS, MAX_GRAM_PRODUCTS = 2500, 6 * 10**10
"""How many rows second moments are taken over, at most, and how many products their Gram matrix may take."""

ROWS_AT_ONCE = 512
"""How many rows are widened to float64 at a time."""

GRID = 4096.0
"""Vectors are whole numbers of 1 / GRID of the power of two above their largest entry, so that activations which differ
in their last bits, as between frameworks, give the same patch."""


@dataclass(frozen=True, eq=False)
class SecondMoments:
    """The second moments S of some rows, kept as the rows themselves: no matrix is larger than rows by rows.

    Attributes:
        rows: float64 `(N, n)`.
    """

    rows: Array

    def solve(self, vectors: Array, among: Array | None = None, ridge: float = RIDGE) -> Array:
        """Return `(S + ρ I)⁻¹ vectors`, float64 `(n, k)`; zeros where all rows are zero.

        Wider than it is long, S is inverted by Woodbury's identity:
        R B = (B - Hᵀ (N ρ I + H Hᵀ)⁻¹ H B) / ρ, with H the N rows.

        Args:
            vectors: float64 `(n, k)`.
            among: Which rows to take the moments of, bool `(N,)`; all when None.
            ridge: ρ in mean second moments.
        """
        kept = np.arange(len(self.rows)) if among is None else np.flatnonzero(among)
        width = self.rows.shape[1]
        trace = float(self._squares[kept].sum()) / max(1, len(kept))
        added = ridge * trace / width
        if added <= 0:
            return np.zeros_like(vectors)
        if width <= len(self.rows):
            own = self.rows[kept]
            moments = own.T @ own / len(kept)
            moments[np.diag_indices(width)] += added
            return np.asarray(cho_solve(cho_factor(moments, lower=True), vectors))
        gram = self._gram[np.ix_(kept, kept)]
        gram[np.diag_indices(len(kept))] += len(kept) * added
        weights = np.zeros((len(self.rows), vectors.shape[1]))
        weights[kept] = cho_solve(cho_factor(gram, lower=True), (self.rows @ vectors)[kept])
        found: Array = (vectors - self.rows.T @ weights) / added
        return found

    @cached_property
    def _gram(self) -> Array:
        found: Array = self.rows @ self.rows.T
        return found

    @cached_property
    def _squares(self) -> Array:
        return np.asarray(np.einsum("ij,ij->i", self.rows, self.rows))


def max_moment_rows(width: int) -> int:
    """How many rows second moments of this width are taken over, at most."""
    return max(1, min(MAX_MOMENT_ROWS, int((MAX_GRAM_PRODUCTS / width) ** 0.5)))


def mean_shift(entering: Array, labels: Array, negatives: Array, positives: Array, min_t: float = MIN_T) -> Array:
    """Return μ, float64 `(n,)`: how what enters a layer differs, on average, when the fault happens.

    A class without positives is compared with the positives of all classes. Entries that may well be chance are 0.

    Args:
        entering: What enters the layer `(inputs, n)`; it is read some rows at a time.
        labels: True classes `(inputs,)`.
        negatives: Rows of inputs with the fault.
        positives: Rows of inputs that are right.
        min_t: How many standard errors an entry has to be away from zero.
    """
    total, squares = np.zeros((2, entering.shape[1]))
    if not len(negatives) or not len(positives):
        return total
    for label in np.unique(labels[negatives]):
        alike = positives[labels[positives] == label]
        usual = _mean(entering, alike if len(alike) else positives)
        own = negatives[labels[negatives] == label]
        for part in batches(len(own), ROWS_AT_ONCE):
            differences = np.asarray(entering[own[part]], np.float64) - usual
            total += differences.sum(axis=0)
            squares += np.square(differences).sum(axis=0)
    count = len(negatives)
    mean = total / count
    if count > 1:
        variance = np.maximum(squares - count * mean * mean, 0) / (count - 1)
        mean[np.abs(mean) < min_t * np.sqrt(variance / count)] = 0
    return mean


def _mean(entering: Array, rows: Array) -> Array:
    found = np.zeros(entering.shape[1])
    for part in batches(len(rows), ROWS_AT_ONCE):
        found += np.asarray(entering[rows[part]], np.float64).sum(axis=0)
    found /= len(rows)
    return found


def erase_direction(weight: Array, shift: Array, whitened: Array) -> tuple[Array, Array]:
    """Return the two vectors of which ΔW at f = 1 is the outer product, float32 `(out,)` and `(n,)`.

    Args:
        weight: W `(out, n)`.
        shift: μ `(n,)`.
        whitened: R μ `(n,)`.
    """
    length = float(shift @ whitened)
    if not length > 0:
        return np.zeros(len(weight), np.float32), np.zeros(len(shift), np.float32)
    return _on_grid(-(weight @ shift)), _on_grid(whitened / length)


def _on_grid(vector: Array) -> Array:
    """Round a vector to whole numbers of 1 / GRID of the power of two above its largest entry, float32."""
    largest = float(np.abs(vector).max(initial=0.0))
    if not 0 < largest < np.inf:
        return np.zeros(len(vector), np.float32)
    unit = 2.0 ** np.ceil(np.log2(largest)) / GRID
    return np.asarray(np.rint(vector / unit) * unit, np.float32)
