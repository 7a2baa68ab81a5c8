"""Stratified division of rows in two."""

from __future__ import annotations

import numpy as np

from arachne.model.values import Array


def divide(strata: Array, share: float, *, rng: np.random.Generator, groups: Array | None = None) -> Array:
    """Choose which rows go to the first side, bool `(n,)`.

    The first side gets its share of every stratum, and of all rows together, to within one row: with halves, the odd
    rows of strata of odd size go to the two sides in turn. Groups are never divided, even where that costs balance.

    Args:
        strata: The stratum of each row `(n,)`; neighbouring numbers balance each other.
        share: The first side's share, between 0 and 1.
        rng: The source of randomness, for the rows within a stratum.
        groups: The group of each row `(n,)`.
    """
    if groups is not None and len(np.unique(groups)) < len(groups):
        return _divide_groups(strata, share, groups, rng)
    chosen = np.zeros(len(strata), dtype=bool)
    before = 0
    for rows in _members(strata):
        after = before + len(rows)
        # The running total is rounded, not each stratum, so that the roundings never add up.
        quota = _round_half_up(share * after) - _round_half_up(share * before)
        chosen[rng.permutation(rows)[:quota]] = True
        before = after
    return chosen


def _round_half_up(number: float) -> int:
    return int(np.floor(number + 0.5))


def _divide_groups(strata: Array, share: float, groups: Array, rng: np.random.Generator) -> Array:
    """Assign whole groups, the largest first, each to the side that lacks more of the group's strata."""
    strata = np.unique(strata, return_inverse=True)[1]
    totals = np.bincount(strata).astype(float)
    # How many rows each side still lacks, in every stratum; the last entry stands for all rows together.
    scale = np.append(totals, len(strata))
    lacking = {True: share * scale, False: (1 - share) * scale}
    chosen = np.zeros(len(strata), dtype=bool)
    members = _members(groups)
    order = rng.permutation(len(members))
    for group in order[np.argsort([-len(members[group]) for group in order], kind="stable")]:
        rows = members[group]
        counts = np.append(np.bincount(strata[rows], minlength=len(totals)), len(rows))
        need = {side: float(np.sum(counts * lacking[side] / scale)) for side in (True, False)}
        side = need[True] >= need[False]
        if lacking[side][-1] <= 0:  # that side is full, whatever its strata lack
            side = not side
        lacking[side] -= counts
        chosen[rows] = side
    return chosen


def _members(groups: Array) -> list[Array]:
    """List the rows of every group, groups in sorted order."""
    numbers = np.unique(groups, return_inverse=True)[1]
    order = np.argsort(numbers, kind="stable")
    ends = np.cumsum(np.bincount(numbers))[:-1]
    return [rows for rows in np.split(order, ends) if len(rows)]
