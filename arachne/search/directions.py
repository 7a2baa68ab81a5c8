"""The directions in which a fault enters a layer, and what tells them from what enters it otherwise.

For a linear layer z = W h + b (a convolution is one on its patches), with S the second moments of what enters it for
inputs that are right, n its width:

    ρ = RIDGE trace(S) / n      R = (S + ρ I)⁻¹
    M = differences, as columns: how h differs when the fault happens (`arachne.search.shifts`)
    MᵀRM = w σ² wᵀ              d = M w / σ, the directions      v = R M w / σ, their detectors: vᵀ d = I

Of all changes ΔW with which the layer no longer sees d, ΔW = -(W d) vᵀ moves z least where the model is right (in mean
squares, with the ridge).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import cho_factor, cho_solve, eigh

from arachne.model.lazy import is_lazy
from arachne.model.values import MAX_BLOCK_BYTES, Array, batches

RIDGE = 0.03
"""The ridge, in mean second moments; anything from 0.03 to 0.3 does about the same."""

MAX_MOMENT_ROWS, MAX_PRODUCTS = 2500, 12 * 10**9
"""How many rows second moments are taken over, at most, and how many products they may take."""

GRID = 4096.0
"""Vectors are whole numbers of 1 / GRID of the power of two above their largest entry, so that activations which differ
in their last bits, as between frameworks, give the same patch."""

SMALLEST_SHARE = 1e-6
"""Directions whose σ² is a smaller share of the largest are rounding, and left out."""


@dataclass(frozen=True, eq=False)
class SecondMoments:
    """The second moments S of some rows, with or without those of a fold; no matrix is larger than rows by rows.

    Attributes:
        rows: `(N, n)`, read and made float64 piece by piece; only what is no larger than N² is kept of lazy ones.
        folds: The fold of each row `(N,)`; -1 where it is in no fold.
    """

    rows: Array
    folds: Array

    def solve(self, vectors: Array, without: int = -1, ridge: float = RIDGE) -> Array:
        """Return `(S + ρ I)⁻¹ vectors`, float64 `(n, k)`; zeros where all rows are zero.

        Wider than it is long, S is inverted by Woodbury's identity:
        R B = (B - Hᵀ (N ρ I + H Hᵀ)⁻¹ H B) / ρ, with H the N rows.

        Args:
            vectors: float64 `(n, k)`.
            without: The fold whose rows are left out.
            ridge: ρ in mean second moments.
        """
        kept = np.flatnonzero((self.folds != without) | (self.folds < 0))
        added = ridge * float(self._squares[kept].sum()) / (max(1, len(kept)) * self.rows.shape[1])
        if added <= 0:
            return np.zeros_like(vectors)
        factor = self._factors.get((without, ridge)) or self._factor(kept, without, added)
        if not is_lazy(self.rows):
            self._factors[without, ridge] = factor
        if self._is_long:
            return np.asarray(cho_solve(factor, vectors))
        weights = np.zeros((len(self.rows), vectors.shape[1]))
        weights[kept] = cho_solve(factor, np.concatenate([own @ vectors for _, own in self._pieces()])[kept])
        seen = _add(own.T @ weights[part] for part, own in self._pieces())
        found: Array = (vectors - seen) / added
        return found

    def narrow(self, columns: Array) -> SecondMoments:
        """Return the second moments of some columns of the rows, by their numbers."""
        return SecondMoments(np.concatenate([own[:, columns] for _, own in self._pieces()]), self.folds)

    def _factor(self, kept: Array, without: int, added: float) -> tuple[Array, bool]:
        """Factorise S + ρ I, or N ρ I + H Hᵀ where that is smaller."""
        if self._is_long:
            folds = [fold for fold in np.unique(self.folds).tolist() if fold != without or fold < 0]
            matrix = _add(map(self._products, folds)) / len(kept)
        else:
            matrix, added = self._gram[np.ix_(kept, kept)], len(kept) * added
        matrix[np.diag_indices(len(matrix))] += added
        found: tuple[Array, bool] = cho_factor(matrix, lower=True, overwrite_a=True)
        return found

    @property
    def _is_long(self) -> bool:
        return bool(self.rows.shape[1] <= len(self.rows))

    @cached_property
    def _factors(self) -> dict[tuple[int, float], tuple[Array, bool]]:
        return {}

    @property
    def sizes(self) -> Array:
        """The root mean square of each column `(n,)`."""
        squares = _add(np.einsum("ij,ij->j", own, own) for _, own in self._pieces())
        return np.asarray(np.sqrt(squares / max(1, len(self.rows))))

    @cached_property
    def deviations(self) -> Array:
        """The standard deviation of each column `(n,)`."""
        means = _add(own.sum(axis=0) for _, own in self._pieces()) / max(1, len(self.rows))
        return np.asarray(np.sqrt(np.maximum(np.square(self.sizes) - np.square(means), 0.0)))

    def _products(self, fold: int) -> Array:
        """Return Hᵀ H of the rows of a fold."""
        found = self._by_fold.get(fold)
        if found is None:
            found = _add(own.T @ own for _, own in self._pieces(np.flatnonzero(self.folds == fold)))
        if not is_lazy(self.rows):
            self._by_fold[fold] = found
        return found

    @cached_property
    def _by_fold(self) -> dict[int, Array]:
        return {}

    @cached_property
    def _gram(self) -> Array:
        found = np.empty((len(self.rows), len(self.rows)))
        for part, own in self._pieces():
            for others, other in self._pieces(np.arange(part.start)):
                found[part, others] = own @ other.T
                found[others, part] = found[part, others].T
            found[part, part] = own @ own.T
        return found

    @cached_property
    def _squares(self) -> Array:
        return np.concatenate([np.einsum("ij,ij->i", own, own) for _, own in self._pieces()])

    def _pieces(self, among: Array | None = None) -> Iterator[tuple[slice, Array]]:
        """Yield rows, or those among them, block by block; the same blocks whether they are lazy or not."""
        chosen = np.arange(len(self.rows)) if among is None else among
        most = max(1, MAX_BLOCK_BYTES // (4 * self.rows.shape[1]))
        for part in list(batches(len(chosen), most)) or [slice(0, 0)]:
            yield part, np.asarray(self.rows[chosen[part]], np.float64)


def _add(parts: Iterable[Array]) -> Array:
    """Add arrays, the first of which is not changed."""
    rest = iter(parts)
    return sum(rest, start=next(rest))


def max_moment_rows(width: int, most: int = MAX_MOMENT_ROWS) -> int:
    """How many rows second moments of this width are taken over, at most."""
    wide = int((MAX_PRODUCTS / width) ** 0.5)
    return max(1, min(most, wide if wide <= width else MAX_PRODUCTS // width**2))


def find_directions(differences: Array, whitened: Array, rank: int | None = None) -> tuple[Array, Array]:
    """Return directions and detectors, float64 `(n, r)` each, the most distinct first.

    Args:
        differences: M `(n, k)`.
        whitened: R M `(n, k)`.
        rank: How many; all that are there when None.
    """
    products = differences.T @ whitened
    squares, turned = eigh((products + products.T) / 2)
    kept = np.flatnonzero(squares > max(SMALLEST_SHARE * squares.max(initial=0.0), 0.0))[::-1][:rank]
    turned = turned[:, kept] / np.sqrt(squares[kept])
    directions, detectors = differences @ turned, whitened @ turned
    largest = np.abs(detectors).argmax(axis=0) if detectors.size else np.zeros(0, np.int64)
    signs = np.where(detectors[largest, np.arange(len(kept))] < 0, -1.0, 1.0)  # eigenvectors have no sign of their own
    return directions * signs, detectors * signs


def whiten_each(differences: Array, whitened: Array) -> Array:
    """Return R m / √(mᵀ R m) of each column m of the differences that is not zero, float64 `(n, r)`."""
    squares = np.einsum("ij,ij->j", differences, whitened)
    kept = squares > max(SMALLEST_SHARE * squares.max(initial=0.0), 0.0)
    found: Array = whitened[:, kept] / np.sqrt(squares[kept])
    return found


def cut_rank(left: Array, right: Array, sizes: Array, rank: int, lost: float = 0.0) -> tuple[Array, Array]:
    """Return the nearest change of small rank to `left rightᵀ`, by its effect on inputs: float32 `(out, r)`, `(n, r)`.

    Args:
        left: `(out, k)`.
        right: `(n, k)`.
        sizes: How large each input of the layer is, `(n,)`.
        rank: The largest rank.
        lost: The share of what the change does to inputs, in squares, that a smaller rank may lose.
    """
    sizes = np.maximum(sizes, 1e-6 * sizes.max(initial=0.0))
    scaled = right.astype(np.float64) * sizes[:, None]
    (outer, upper), (inner, lower) = (np.linalg.qr(one) for one in (left.astype(np.float64), scaled))
    u, s, v = np.linalg.svd(upper @ lower.T)
    missing = np.cumsum((s * s)[::-1])[::-1]  # by all directions from each on
    kept = slice(0, min(rank, max(1, int((missing > lost * missing[0]).sum()) if lost else len(s))))
    tall = inner @ v[kept].T
    tall = np.divide(tall, sizes[:, None], out=np.zeros_like(tall), where=sizes[:, None] > 0)
    return on_grid((outer @ u[:, kept]) * s[kept]), on_grid(tall)


def on_grid(vectors: Array) -> Array:
    """Round columns to whole numbers of 1 / GRID of the power of two above their largest entry, float32 `(n, k)`."""
    largest = np.abs(vectors).max(axis=0, initial=0.0)
    finite = (largest > 0) & (largest < np.inf)
    unit = np.where(finite, 2.0 ** np.ceil(np.log2(np.where(finite, largest, 1.0))) / GRID, 1.0)
    found = np.where(finite, np.rint(np.where(finite, vectors, 0.0) / unit) * unit, 0.0).astype(np.float32)
    return np.asarray(found + np.float32(0))  # -0 becomes 0: whose sign a zero has is chance
