"""Pareto fronts of (gradient loss, forward impact), both maximised.

The front is pymoo's, the ranks of the fronts behind it are those of the library pymoo takes its fronts from. What is
added here is scale: nearly all of ten million weights are dominated by a chain of a few good ones. Dropping them first
changes nothing in the result and takes one flag per weight. Both libraries are imported when a front is asked for: they
are slow to load, and localisers are also imported for their options alone.
"""

from __future__ import annotations

import numpy as np

from arachne.values import Array

BLOCK = 1 << 20


def front(points: Array) -> Array:
    """Row numbers of the points that no other point dominates, ascending.

    Args:
        points: `(n, 2)`, larger is better; equal points do not dominate each other.
    """
    from pymoo.util.nds.non_dominated_sorting import find_non_dominated

    rows = survivors(points[:, 0], points[:, 1])
    return np.sort(rows[find_non_dominated(-points[rows].astype(np.float64))])


def order_by_fronts(points: Array) -> Array:
    """All row numbers, first front first, within a front by the normalised sum of both scores, then by row."""
    from moocore import pareto_rank

    ranks = pareto_rank(points.astype(np.float64), maximise=True)
    return np.lexsort((np.arange(len(points)), -_normalised_sum(points[:, 0], points[:, 1], _scale(*points.T)), ranks))


def survivors(first: Array, second: Array, fronts: int = 1) -> Array:
    """Row numbers of all points that can lie on the first `fronts` fronts, and of few others.

    The point with the largest product of scores dominates most of the rest, the best of those dominates most of them
    again, and so on: whatever a chain of `fronts` points dominates lies behind that many fronts. (The largest sum can
    be a point at the edge, which dominates few.)

    Args:
        first: One score, `(n,)`.
        second: The other, `(n,)`.
        fronts: How many fronts must be kept whole.
    """
    below = np.ones(len(first), bool)
    for _ in range(fronts):
        best = _best(first, second, below)
        if best is None:
            break
        a, b = first[best], second[best]
        for start in range(0, len(first), BLOCK):
            block = slice(start, start + BLOCK)
            one, two = first[block], second[block]
            below[block] &= (one <= a) & (two <= b) & ((one < a) | (two < b))
    return np.flatnonzero(~below)


def _best(first: Array, second: Array, among: Array) -> int | None:
    """The row with the largest product of scores among those flagged."""
    best, largest = None, -np.inf
    for start in range(0, len(first), BLOCK):
        block = slice(start, start + BLOCK)
        products = np.where(among[block], first[block].astype(np.float64) * second[block], -np.inf)
        top = int(np.argmax(products))
        if products[top] > largest:
            best, largest = start + top, float(products[top])
    return best


def _normalised_sum(first: Array, second: Array, scale: tuple[float, float]) -> Array:
    total: Array = first / scale[0] + second / scale[1]
    return total


def _scale(first: Array, second: Array) -> tuple[float, float]:
    return float(first.max(initial=0.0)) or 1.0, float(second.max(initial=0.0)) or 1.0
