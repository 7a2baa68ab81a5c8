"""Judging candidates on a route: bounds of their total deficits, given up as soon as a ceiling is passed.

Every deficit is at least 0, so a candidate whose deficits so far exceed its ceiling is lost whatever the other inputs
say. With `error` the most a margin or a loss may be off, an input is

    right for certain     margin > error                    deficit 0
    wrong for certain     margin < -error                   deficit off by weight * error / (1 + loss - error)**2
    in the band           anything between, or no number    deficit between 0 and that of a wrong input
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np

from arachne.evaluate.band import ROUNDING, Band
from arachne.evaluate.base import UNIT, Stake
from arachne.evaluate.order import HardFirst
from arachne.evaluate.routes import Block, Route
from arachne.evaluate.threads import one_thread
from arachne.losses import margins
from arachne.values import Array

FURTHER = 1.15
"""How much longer the first run of inputs is than what usually makes up a candidate's ceiling."""


@dataclass(frozen=True, eq=False)
class Estimates:
    """What is known about some candidates; for one that was given up, so far.

    Attributes:
        deficits: By term, int64 `(candidates, terms)`, between the bounds.
        low: The plain evaluator's totals are at least these, int64 `(candidates,)`.
        high: And at most these.
        slack: The added bands of all inputs, float64 `(candidates,)`; no number where an input was in the band.
        complete: Whether all inputs were looked at.
    """

    deficits: Array
    low: Array
    high: Array
    slack: Array
    complete: Array


class Judge:
    """Takes candidates through the inputs on a route, hard inputs first."""

    def __init__(self, route: Route, band: Band, stake: Stake, order: HardFirst) -> None:
        self.route = route
        self.band = band
        self._stake = stake
        self._order = order
        self._usual = 0.0
        self.met = 0
        """How many pairs of candidate and input were looked at."""
        self._reorder()

    def next_generation(self) -> None:
        """Learn from what the inputs cost."""
        if self._order.renew():
            self._reorder()

    def estimate(self, trials: Array, ceilings: Array | None) -> Estimates:
        """Bounds for candidates `(candidates, k)`; those above their ceilings are given up on the way."""
        n = len(trials)
        if ceilings is not None:
            self._usual = float(np.median(ceilings))
        sums = _Sums(n, self._stake.n_terms, self.band)
        for start in range(0, n, self.route.block):
            stop = min(n, start + self.route.block)
            # Candidates may overflow; what is no number is in the band.
            with np.errstate(all="ignore"), one_thread() if self.route.in_numpy else nullcontext():
                self._block(self.route.start(trials[start:stop]), np.arange(start, stop), ceilings, sums)
        return sums.estimates()

    def not_right(self, scores: Array, scale: Array) -> Array:
        """The inputs one candidate may get wrong, from its scores on the route `(n, classes)` and their scale."""
        return np.flatnonzero(~(margins(scores, self._stake.labels) > self.band.error(scale)))

    def _block(self, block: Block, active: Array, ceilings: Array | None, sums: _Sums) -> None:
        for rows in self.route.runs(len(self._worth)):
            judgement = block.judge(rows)
            found = judgement.margins
            error = self.band.error(judgement.scale)
            doubtful = ~(found > error)
            n, width = found.shape
            pairs = np.flatnonzero(doubtful)
            edges = np.searchsorted(pairs, width * np.arange(n + 1))
            who = np.repeat(np.arange(n), np.diff(edges))
            row = pairs - who * width
            costs = _Costs.of(
                judgement.losses(pairs, row), found.ravel()[pairs], error.ravel()[pairs], self._worth[rows][row]
            )
            sums.add(active, edges, who * self._stake.n_terms + self._terms[rows][row], costs)
            self._order.note(rows, np.bincount(row, costs.likely, width), len(active))
            self.met += found.size
            if ceilings is None:
                continue
            going = sums.low(active) <= ceilings[active]
            if not going.all():
                sums.complete[active[~going]] = False
                active = active[going]
                if not len(active):
                    return
                block.keep(np.flatnonzero(going))

    def _reorder(self) -> None:
        # No candidate is lost before it has met the inputs that are wrong anyway, so they make one run.
        least = int(FURTHER * self._order.reaching(self._usual)) if self._usual else 0
        self.route.first_run = min(max(least, type(self.route).first_run), self.route.longest_run)
        order = self.route.reorder(self._order.order)
        self._order.order = order
        self._worth, self._terms = self._stake.weights[order] * UNIT, self._stake.terms[order]


@dataclass(frozen=True, eq=False)
class _Costs:
    """Deficits of some pairs of candidate and input, in units, and how far they may be off."""

    likely: Array
    certain: Array
    slack: Array
    in_band: Array
    """Which of the pairs are in the band."""
    most: Array
    """What those may cost."""

    @classmethod
    def of(cls, losses: Array, margins: Array, error: Array, worth: Array) -> _Costs:
        cost = worth * (losses / (1 + losses))
        # Losses are float32: their own rounding is small against any score's, but not against a small deficit.
        off = (error + 4 * ROUNDING) / (1 + np.maximum(losses - error, 0)) ** 2 + 2 * ROUNDING
        slack = worth * off + 1
        in_band = ~((margins < -error) & np.isfinite(cost) & np.isfinite(slack))
        likely = np.where(margins > 0, 0, cost)
        which = np.flatnonzero(in_band)
        most = cost[which] + slack[which]
        most[~np.isfinite(most)] = np.inf
        # One unit more: each input's deficit is rounded to a whole number of them.
        most = np.minimum(most, worth[which] + 1)
        likely[which] = np.fmin(likely[which], most)
        cost[which] = 0
        slack[which] = 0
        return cls(likely, cost, slack, which, most)


class _Sums:
    """Running sums of costs, and the bounds that follow from them."""

    def __init__(self, n: int, terms: int, band: Band) -> None:
        self._terms = terms
        self._sum_error = band.sum_error
        self._likely = np.zeros((n, terms))
        self._certain = np.zeros(n)
        self._slack = np.zeros(n)
        self._squares = np.zeros(n)
        self._band = np.zeros(n)
        self.complete = np.ones(n, bool)

    def add(self, active: Array, edges: Array, cells: Array, costs: _Costs) -> None:
        """Add costs of pairs.

        Args:
            active: Whose costs they are.
            edges: Where the pairs of each of them begin and end, `(active + 1,)`.
            cells: Candidate and term of each pair, in one number.
            costs: The costs.
        """
        n = len(active)
        self._likely[active] += np.bincount(cells, costs.likely, n * self._terms).reshape(n, self._terms)
        some = np.flatnonzero(np.diff(edges))
        if len(some):
            which, starts = active[some], edges[some]
            self._certain[which] += np.add.reduceat(costs.certain, starts)
            self._slack[which] += np.add.reduceat(costs.slack, starts)
            self._squares[which] += np.add.reduceat(costs.slack * costs.slack, starts)
        if len(costs.in_band):
            self._band[active] += np.bincount(cells[costs.in_band] // self._terms, costs.most, n)

    def low(self, which: Array | slice) -> Array:
        """Lower bounds of some candidates' totals, with room for the rounding of the sums themselves."""
        low = (self._certain[which] - self._sum_error(self._slack[which], self._squares[which])) * (1 - 1e-12)
        return np.asarray(np.maximum(np.floor(low) - self._terms, 0))

    def estimates(self) -> Estimates:
        """Everything in whole numbers."""
        low = self.low(slice(None))
        high = (self._certain + self._sum_error(self._slack, self._squares) + self._band) * (1 + 1e-12)
        high = np.ceil(high) + self._terms * (high > 0)
        return Estimates(
            deficits=np.rint(self._likely).astype(np.int64),
            low=low.astype(np.int64),
            high=high.astype(np.int64),
            slack=np.where(self._band > 0, np.nan, self._slack),
            complete=self.complete,
        )
