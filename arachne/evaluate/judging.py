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
from arachne.evaluate.base import UNIT, Stake, by_term, losses
from arachne.evaluate.order import HardFirst
from arachne.evaluate.routes import Block, Route
from arachne.evaluate.threads import one_thread
from arachne.values import Array


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
        sums = _Sums(n, self._stake.n_terms, self.band)
        for start in range(0, n, self.route.block):
            stop = min(n, start + self.route.block)
            # Candidates may overflow; what is no number is in the band.
            with np.errstate(all="ignore"), one_thread() if self.route.in_numpy else nullcontext():
                self._block(self.route.start(trials[start:stop]), np.arange(start, stop), ceilings, sums)
        return sums.estimates()

    def doubtful(self, scores: Array, scale: Array) -> Array:
        """The row numbers of inputs one candidate has in the band, from its scores `(n, classes)` and their scale."""
        margins, error = self._margins(scores, scale)
        return np.flatnonzero(~(np.abs(margins) > error))

    def known_better(self, scores: Array, scale: Array, rows: Array, deficits: Array) -> Estimates:
        """Bounds for one candidate of which some inputs are known exactly.

        Args:
            scores: On the route, `(n, classes)`.
            scale: Their scale, `(n,)`.
            rows: The inputs that are known.
            deficits: Their deficits, int64 `(rows,)`.
        """
        stake, band = self._stake, self.band
        margins, error = self._margins(scores, scale)
        open_ = ~(margins > error)
        open_[rows] = False
        which = np.flatnonzero(open_)
        sums = _Sums(1, stake.n_terms, band)
        nobody = np.zeros(len(which), np.int64)
        costs = _Costs.of(
            losses(scores[which], stake.labels[which]), margins[which], error[which], stake.weights[which] * UNIT
        )
        sums.add(np.array([0]), nobody, stake.terms[which], costs)
        return sums.estimates(by_term(deficits, stake.terms[rows], stake.n_terms))

    def _margins(self, scores: Array, scale: Array) -> tuple[Array, Array]:
        rows, labels = np.arange(len(scores)), self._stake.labels
        others = scores.copy()
        others[rows, labels] = -np.inf
        return scores[rows, labels] - others.max(axis=1), self.band.error(scale)

    def _block(self, block: Block, active: Array, ceilings: Array | None, sums: _Sums) -> None:
        for rows in self.route.runs(len(self._worth)):
            judgement = block.judge(rows)
            margins = judgement.margins
            error = self.band.error(judgement.scale)
            doubtful = ~(margins > error)
            pairs = np.flatnonzero(doubtful)
            who = np.repeat(np.arange(len(margins)), np.count_nonzero(doubtful, axis=1))
            row = pairs - who * margins.shape[1]
            costs = _Costs.of(
                judgement.losses(pairs), margins.ravel()[pairs], error.ravel()[pairs], self._worth[rows][row]
            )
            sums.add(active, who, self._terms[rows][row], costs)
            self._order.note(rows, np.bincount(row, costs.likely, margins.shape[1]), len(active))
            self.met += margins.size
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

    def add(self, active: Array, who: Array, terms: Array, costs: _Costs) -> None:
        """Add costs of pairs; `who` counts within `active`."""
        n = len(active)
        cells = np.bincount(who * self._terms + terms, costs.likely, n * self._terms)
        self._likely[active] += cells.reshape(n, self._terms)
        self._certain[active] += np.bincount(who, costs.certain, n)
        self._slack[active] += np.bincount(who, costs.slack, n)
        self._squares[active] += np.bincount(who, costs.slack * costs.slack, n)
        if len(costs.in_band):
            self._band[active] += np.bincount(who[costs.in_band], costs.most, n)

    def low(self, which: Array | slice) -> Array:
        """Lower bounds of some candidates' totals, with room for the rounding of the sums themselves."""
        low = (self._certain[which] - self._sum_error(self._slack[which], self._squares[which])) * (1 - 1e-12)
        return np.asarray(np.maximum(np.floor(low) - self._terms, 0))

    def estimates(self, known: Array | int = 0) -> Estimates:
        """Everything in whole numbers; `known` deficits, int64 `(terms,)`, are added to every candidate's."""
        extra = int(np.sum(known))
        low = self.low(slice(None))
        high = (self._certain + self._sum_error(self._slack, self._squares) + self._band) * (1 + 1e-12)
        high = np.ceil(high) + self._terms * (high > 0)
        return Estimates(
            deficits=np.rint(self._likely).astype(np.int64) + known,
            low=low.astype(np.int64) + extra,
            high=high.astype(np.int64) + extra,
            slack=np.where(self._band > 0, np.nan, self._slack),
            complete=self.complete,
        )
