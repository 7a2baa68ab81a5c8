"""Statistics where an input has several decisions: an input is one draw, however many decisions it has.

The decisions of one input share its noise, its light and its author, so they go wrong together, and twenty of them say
less than twenty inputs. Counts and rates are of decisions everywhere; how sure they are goes by inputs:

- An interval is Wilson's with as many draws as the decisions are worth: their number divided by the design effect, the
  variance between inputs over the variance that independent decisions would have (a ratio estimate, linearised). The
  design effect is estimated as if one more input had been seen whose decisions are all of the rarer kind. Without that,
  a few decisions of a few inputs say nothing about inputs that break as a whole, and intervals of rare breaks are far
  too short. It matters less the more inputs there are, and gives the rule of three by inputs where nothing broke.
- A paired test flips signs: if a patch does nothing, an input's wins and losses are as likely to be the other way
  round. Where no input has more than one decision, this is McNemar's exact test.
- The test behind a guarantee bets, input by input, that breaks are rarer than the budget. The expected winnings are
  none if the budget is not kept, whatever the correlation, so the chance of winning a factor of ten is at most 10 %.

`tests/unit/test_by_input.py` simulates all three.
"""

from __future__ import annotations

import bisect
import math

import numpy as np

from arachne.model.values import Array
from arachne.scoring.statistics import Rate, sign_test

STAKES = (1.0, 0.75, 0.5, 0.25, 0.125)
"""The shares of the largest possible stake that are bet at the same time; half of the capital is on the first."""

DROP_STAKES = (1.0, 0.5, 0.25, 0.12, 0.06, 0.03, 0.015)
"""Stakes for bets on a fall of accuracy; small stakes are for patches that break and fix many inputs alike."""

MAX_EXACT_FLIPS = 20_000_000
"""Inputs times the sum of their differences up to which a flip test is exact; else it draws `FLIPS` times."""

FLIPS = 20_000
"""Seeded draws of signs."""


def find_repeated(owners: Array) -> Array | None:
    """Return the input of each decision `(m,)` if one has several; None if no input has more than one."""
    return owners if len(np.unique(owners)) < len(owners) else None


def rate_of(hit: Array, among: Array, owners: Array | None) -> Rate:
    """Return the share of some decisions that are hit, with what it is worth.

    Args:
        hit: Which decisions count, bool `(m,)`.
        among: Which decisions it is a share of, bool `(m,)`.
        owners: The input of each decision, int64 `(m,)`; None where no input has several.
    """
    count, total = int((hit & among).sum()), int(among.sum())
    if owners is None:
        return Rate(count, total)
    return Rate(count, total, effective_number(*_by_input(owners[among], hit[among])))


def effective_number(hits: Array, totals: Array) -> float:
    """Return how many independent decisions are worth as much as these, from hits and decisions of each input `(n,)`.

    The design effect is at least 1, and estimated with one more input of average size, all of the rarer kind.
    """
    n, decisions = len(totals), float(totals.sum())
    if not decisions:
        return 0.0
    average = decisions / n
    hits = np.append(hits, average if 2 * float(hits.sum()) <= decisions else 0.0)
    totals = np.append(totals, average)
    share = float(hits.sum() / totals.sum())
    between = (n + 1) / n * float(((hits - share * totals) ** 2).sum()) / float(totals.sum()) ** 2
    alone = share * (1 - share) / float(totals.sum())
    return decisions / max(between / alone, 1.0)


def paired_p(better: Array, worse: Array, owners: Array | None) -> float:
    """Test two-sided whether decisions became better, from which did and which became worse, bool `(m,)`."""
    if owners is None:
        return sign_test(int(better.sum()), int(worse.sum()))
    net = better.astype(np.int64) - worse.astype(np.int64)
    return flip_test(_by_input(owners, net)[0].astype(np.int64))


def flip_test(differences: Array) -> float:
    """Test two-sided whether whole numbers `(n,)`, one for each input, lie around 0, by flipping their signs.

    It is the exact sign test where all of them are 1 or -1, exact as far as `MAX_EXACT_FLIPS` allows, and else as good
    as `FLIPS` seeded draws.
    """
    sizes = np.abs(differences[differences != 0])
    observed = abs(int(differences.sum()))
    if not len(sizes):
        return 1.0
    total = int(sizes.sum())
    if len(sizes) * total > MAX_EXACT_FLIPS:
        signs = np.random.default_rng(0).integers(2, size=(FLIPS, len(sizes)), dtype=np.int8) * 2 - 1
        return float((1 + (np.abs(signs @ sizes) >= observed).sum()) / (1 + FLIPS))
    chances = np.zeros(total + 1)  # of the sum of those that stay positive
    chances[0] = 1.0
    for size in sizes.tolist():
        moved = np.zeros_like(chances)
        moved[size:] = chances[: total + 1 - size]
        chances = (chances + moved) / 2
    sums = 2 * np.arange(total + 1) - total
    return min(1.0, float(chances[np.abs(sums) >= observed].sum()))


def p_above_by_input(hit: Array, among: Array, owners: Array, share: float) -> float:
    """Test whether at least `share` of decisions are hit, valid for any correlation within an input.

    An input with `t` decisions of which `h` are hit multiplies a stake by 1 - s (h - share t): on average by 1 or less
    if the hypothesis holds. The winnings of several stakes are averaged; the p-value is 1 over them. It assumes that
    no input has more decisions than the largest one here.

    Args:
        hit: Which decisions count, bool `(m,)`.
        among: Which decisions the share is of, bool `(m,)`.
        owners: The input of each decision, int64 `(m,)`.
        share: The share.
    """
    hits, totals = _by_input(owners[among], hit[among])
    if not len(totals):
        return 1.0
    stakes = np.array(STAKES) / (float(totals.max()) * (1 - share))
    with np.errstate(divide="ignore"):
        winnings = np.log(np.maximum(1 - stakes[:, None] * (hits - share * totals), 0.0)).sum(axis=1)
    return _p_of(winnings)


def p_drop_above(before: Array, after: Array, among: Array, owners: Array | None, share: float) -> float:
    """Test whether accuracy falls by at least `share`, by the same bets on inputs broken less inputs fixed.

    Args:
        before: Which decisions were right, bool `(m,)`.
        after: Which are right now, bool `(m,)`.
        among: The decisions that accuracy is of, bool `(m,)`.
        owners: The input of each decision, int64 `(m,)`; None where no input has several.
        share: The share.
    """
    net = before.astype(np.float64) - after
    lost, totals = _by_input(np.arange(len(net))[among] if owners is None else owners[among], net[among])
    if not len(totals):
        return 1.0
    stakes = np.array(DROP_STAKES) / (float(totals.max()) * (1 - share))
    with np.errstate(divide="ignore"):
        winnings = np.log(np.maximum(1 - stakes[:, None] * (lost - share * totals), 0.0)).sum(axis=1)
    return _p_of(winnings)


def fewest_for_drop(share: float, level: float) -> int:
    """Return how many inputs of one size `p_drop_above` needs to fall to a level, if none of them changes."""
    winnings = np.log1p(np.array(DROP_STAKES) * share / (1 - share))
    return 1 + bisect.bisect_left(range(1, 1 << 62), -level, key=lambda inputs: -_p_of(inputs * winnings))


def fewest_inputs(share: float, level: float) -> int:
    """Return how many inputs of one size `p_above_by_input` needs to fall to a level, if none of them is hit."""
    winnings = np.log1p(np.array(STAKES) * share / (1 - share))
    return 1 + bisect.bisect_left(range(1, 1 << 62), -level, key=lambda inputs: -_p_of(inputs * winnings))


def _p_of(winnings: Array) -> float:
    """Return 1 over the mean winnings, at most 1, from the logarithm of those of each stake `(stakes,)`."""
    most = float(winnings.max())
    if most == -math.inf:
        return 1.0
    capital = np.full(len(winnings), 0.5 / (len(winnings) - 1))
    capital[0] = 0.5
    return min(1.0, math.exp(min(-most, 700.0)) / float((capital * np.exp(winnings - most)).sum()))


def _by_input(owners: Array, values: Array) -> tuple[Array, Array]:
    """Return the sum of the values and the number of decisions of each input that has any, float64 `(n,)`."""
    _, groups, totals = np.unique(owners, return_inverse=True, return_counts=True)
    return np.bincount(groups, weights=values, minlength=len(totals)), totals.astype(np.float64)
