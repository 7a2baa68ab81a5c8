"""Pareto fronts of (gradient loss, forward impact), both maximised.

pymoo computes the front, and moocore, which pymoo uses itself, the ranks of the fronts behind it. This module makes
them scale: nearly all of ten million weights are dominated by a chain of a few good ones. Dropping them first does not
change the result and takes one flag per weight. Both libraries are imported when a front is computed: they are slow to
load, and localisers are also imported for their options alone.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from arachne.model.values import Array

BLOCK = 1 << 16


def front(points: Array) -> Array:
    """Return the row numbers of the points that no other point dominates, ascending.

    Args:
        points: `(n, 2)`, larger is better; equal points do not dominate each other.
    """
    from pymoo.util.nds.non_dominated_sorting import find_non_dominated

    rows = survivors(points[:, 0], points[:, 1])
    return np.sort(rows[find_non_dominated(-points[rows].astype(np.float64))])


def order_by_fronts(points: Array) -> Array:
    """Return all row numbers, first front first, within a front by the normalised sum of both scores, then by row."""
    from moocore import pareto_rank

    ranks = pareto_rank(points.astype(np.float64), maximise=True)
    return np.lexsort((np.arange(len(points)), -_normalised_sum(points[:, 0], points[:, 1], _scale(*points.T)), ranks))


def survivors(first: Array, second: Array, fronts: int = 1) -> Array:
    """Return the row numbers of all points that can lie on the first `fronts` fronts, and of few others.

    The point with the largest product of scores dominates most of the rest, the best of those dominates most of them
    again, and so on: whatever a chain of `fronts` points dominates lies behind that many fronts. (The largest sum can
    be a point at the edge, which dominates few.)

    Args:
        first: One score, `(n,)`.
        second: The other, `(n,)`.
        fronts: The number of fronts that must stay complete.
    """
    below: Array | None = None
    for _ in range(fronts):
        best = _best(first, second, below)
        if best is None:
            break
        a, b = first[best], second[best]
        if fronts == 1:
            return np.concatenate(
                [start + np.flatnonzero(~_below(*block, a, b)) for start, block in _blocks(first, second)]
            )
        below = np.ones(len(first), bool) if below is None else below
        for start, (one, two) in _blocks(first, second):
            below[start : start + BLOCK] &= _below(one, two, a, b)
    return np.arange(len(first)) if below is None else np.flatnonzero(~below)


def _below(first: Array, second: Array, a: Array, b: Array) -> Array:
    """Tell which points `(a, b)` dominates."""
    dominated: Array = (first <= a) & (second <= b) & ((first < a) | (second < b))
    return dominated


def _blocks(first: Array, second: Array) -> Iterator[tuple[int, tuple[Array, Array]]]:
    for start in range(0, len(first), BLOCK):
        yield start, (first[start : start + BLOCK], second[start : start + BLOCK])


def _best(first: Array, second: Array, among: Array | None) -> int | None:
    """Return the row with the largest product of scores among the flagged rows, or among all."""
    best, largest = None, -np.inf
    for start, (one, two) in _blocks(first, second):
        products = np.multiply(one, two, dtype=np.float64)
        if among is not None:
            products = np.where(among[start : start + BLOCK], products, -np.inf)
        top = int(np.argmax(products))
        if products[top] > largest:
            best, largest = start + top, float(products[top])
    return best


def _normalised_sum(first: Array, second: Array, scale: tuple[float, float]) -> Array:
    total: Array = first / scale[0] + second / scale[1]
    return total


def _scale(first: Array, second: Array) -> tuple[float, float]:
    return float(first.max(initial=0.0)) or 1.0, float(second.max(initial=0.0)) or 1.0
