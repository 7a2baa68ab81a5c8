"""Bounds of candidates' total deficits, from a route's scores and the error band.

No deficit is negative, so a candidate whose lower bound exceeds its ceiling is dropped at once: further inputs could
only add to it. With `error` the largest error of a margin or a loss, an input is

    right for certain     margin > error                    deficit = 0
    wrong for certain     margin < -error                   |deficit - w * loss / (1 + loss)| <= slack
    in the band           anything between, or NaN          0 <= deficit <= min(w, w * loss / (1 + loss) + slack)

    slack = w * error / (1 + loss - error)**2               the largest slope of loss / (1 + loss), times the error

up to the rounding of these formulas themselves, which the code allows for.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np

from arachne.model.values import Array
from arachne.scoring.fast.cache import key_of
from arachne.scoring.fast.deficits import Bounds
from arachne.scoring.fast.error_band import ErrorBand
from arachne.scoring.fast.input_order import InputOrder
from arachne.scoring.fast.routes.base import ROUNDING, Block, Route
from arachne.scoring.fitness import UNIT, FitnessInputs
from arachne.scoring.threads import one_thread
from arachne.tasks import margins

FIRST_RUN_MARGIN = 1.15
"""The first run has this many times the inputs that usually bring a candidate's total to its ceiling."""

LAST_WAVE = -1
"""The wave in which candidates go through all remaining runs of inputs."""


@dataclass(frozen=True, eq=False)
class Estimates(Bounds):
    """Bounds, and the largest error of the estimates.

    Attributes:
        slack: Sum of the inputs' slacks, float64 `(candidates,)`; NaN if an input was in the band.
    """

    slack: Array


class BoundsFinder:
    """Scores candidates on a route, hard inputs first, and sums up bounds of their deficits."""

    def __init__(self, route: Route, band: ErrorBand, fitness_inputs: FitnessInputs, order: InputOrder) -> None:
        self.route = route
        self.band = band
        self._fitness_inputs = fitness_inputs
        self._order = order
        self._usual_ceiling = 0.0
        self._partial: _PartialRun | None = None
        self.looked_at = 0
        """The number of pairs of candidate and input that were scored."""
        self._reorder()

    def next_generation(self) -> None:
        """Renew the order of the inputs from their recent deficits."""
        if self._order.renew():
            self._reorder()

    def estimate(self, trials: Array, ceilings: Array | None, wave: int | None = None) -> Estimates:
        """Return bounds of candidates `(candidates, k)`; candidates above their ceilings are dropped on the way.

        Args:
            trials: The candidates.
            ceilings: See `DeficitSource.bounds`. In wave 0 they only set the usual ceiling; no candidate is dropped.
            wave: Go through one run of inputs, 0 for the first, so that the caller can drop candidates in between;
                candidates of the previous wave continue, others begin at the first run. All runs at once when None.
        """
        fresh = not wave
        if ceilings is not None and fresh:
            self._usual_ceiling = float(np.median(ceilings))
        runs = list(self.route.runs(len(self._weights)))
        stop = len(runs) if wave is None or wave == LAST_WAVE else min(wave + 1, len(runs))
        begun = None if fresh or self._partial is None else self._partial.resume(trials, self.band)
        sums, done = begun or (_Sums(len(trials), self._fitness_inputs.n_terms, self.band), 0)
        for first in range(0, len(trials), self.route.block):
            some = np.arange(first, min(len(trials), first + self.route.block))
            # Candidates may overflow; NaN counts as in the band.
            with np.errstate(all="ignore"), one_thread() if self.route.in_numpy else nullcontext():
                block = self.route.start(trials[some])
                self._block(block, some, runs[done:stop], None if wave == 0 else ceilings, sums)
        if stop < len(runs):
            sums.complete[:] = False
            self._partial = _PartialRun(trials, sums, stop, self.band)
        return sums.estimates()

    def not_certainly_right(self, scores: Array, scale: Array) -> Array:
        """Return the inputs a candidate may get wrong, from its scores on the route `(n, classes)` and their scale."""
        return np.flatnonzero(~(margins(scores, self._fitness_inputs.labels) > self.band.error(scale)))

    def _block(self, block: Block, active: Array, runs: list[slice], ceilings: Array | None, sums: _Sums) -> None:
        for rows in runs:
            scores = block.scores_of_run(rows)
            found = scores.margins
            error = self.band.error(scores.scale)
            doubtful = ~(found > error)
            n, width = found.shape
            pairs = np.flatnonzero(doubtful)
            edges = np.searchsorted(pairs, width * np.arange(n + 1))
            who = np.repeat(np.arange(n), np.diff(edges))
            row = pairs - who * width
            costs = _Costs.of(
                scores.losses(pairs, row), found.ravel()[pairs], error.ravel()[pairs], self._weights[rows][row]
            )
            sums.add(active, edges, who * self._fitness_inputs.n_terms + self._terms[rows][row], costs)
            self._order.note(rows, np.bincount(row, costs.likely, width), len(active))
            self.looked_at += found.size
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
        self._partial = None
        # No candidate is dropped before the inputs that usually add up to its ceiling, so they make one run.
        least = int(FIRST_RUN_MARGIN * self._order.reaching(self._usual_ceiling)) if self._usual_ceiling else 0
        self.route.first_run = min(max(least, type(self.route).first_run), self.route.longest_run)
        order = self.route.reorder(self._order.order)
        self._order.order = order
        self._weights, self._terms = self._fitness_inputs.weights[order] * UNIT, self._fitness_inputs.terms[order]


@dataclass(frozen=True, eq=False)
class _Costs:
    """Deficits of some pairs of candidate and input, in units, and their errors.

    Attributes:
        likely: The estimated deficit, `(pairs,)`.
        certain: The deficit up to its slack, `(pairs,)`; 0 in the band.
        slack: The largest error of `certain`, `(pairs,)`; 0 in the band.
        in_band: The numbers of the pairs in the band.
        most: The largest deficits of these pairs, `(in_band,)`.
    """

    likely: Array
    certain: Array
    slack: Array
    in_band: Array
    most: Array

    @classmethod
    def of(cls, losses: Array, margins: Array, error: Array, weights: Array) -> _Costs:
        cost = weights * (losses / (1 + losses))
        # Losses are float32: their own rounding is small compared with a score's, but not with a small deficit.
        off = (error + 4 * ROUNDING) / (1 + np.maximum(losses - error, 0)) ** 2 + 2 * ROUNDING
        slack = weights * off + 1
        in_band = ~((margins < -error) & np.isfinite(cost) & np.isfinite(slack))
        likely = np.where(margins > 0, 0, cost)
        which = np.flatnonzero(in_band)
        most = cost[which] + slack[which]
        most[~np.isfinite(most)] = np.inf
        # One unit more: each input's deficit is rounded to a whole number of units.
        most = np.minimum(most, weights[which] + 1)
        likely[which] = np.fmin(likely[which], most)
        cost[which] = 0
        slack[which] = 0
        return cls(likely, cost, slack, which, most)


class _Sums:
    """Running sums of costs, and the bounds that follow from them."""

    def __init__(self, n: int, terms: int, band: ErrorBand) -> None:
        self._terms = terms
        self._band_of, self._sum_error = band, band.sum_error
        self._likely = np.zeros((n, terms))
        self._certain = np.zeros(n)
        self._slack = np.zeros(n)
        self._squares = np.zeros(n)
        self._band = np.zeros(n)
        self.complete = np.ones(n, bool)

    def add(self, active: Array, edges: Array, cells: Array, costs: _Costs) -> None:
        """Add costs of pairs.

        Args:
            active: The candidates they belong to, by number.
            edges: The bounds of each candidate's pairs, `(active + 1,)`.
            cells: For each pair, position in `active` * terms + term.
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

    def take(self, which: Array) -> _Sums:
        """Return the sums of a subset of candidates, all active."""
        found = _Sums(0, self._terms, self._band_of)
        for name in ("_likely", "_certain", "_slack", "_squares", "_band"):
            setattr(found, name, getattr(self, name)[which])
        found.complete = np.ones(len(which), bool)
        return found

    def low(self, which: Array | slice) -> Array:
        """Return lower bounds of some candidates' totals, reduced by the rounding of the sums themselves."""
        low = (self._certain[which] - self._sum_error(self._slack[which], self._squares[which])) * (1 - 1e-12)
        return np.asarray(np.maximum(np.floor(low) - self._terms, 0))

    def estimates(self) -> Estimates:
        """Return bounds rounded outwards to whole numbers."""
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


class _PartialRun:
    """The sums of candidates after the first runs of inputs."""

    def __init__(self, trials: Array, sums: _Sums, done: int, band: ErrorBand) -> None:
        self._numbers = {key_of(trial): number for number, trial in enumerate(trials)}
        self._sums, self._done, self._width = sums, done, (band.seen, band.seen_share)

    def resume(self, trials: Array, band: ErrorBand) -> tuple[_Sums, int] | None:
        """Return the sums of some candidates and their number of runs; None if one is new or the band is wider."""
        numbers = [self._numbers.get(key_of(trial)) for trial in trials]
        if None in numbers or self._width != (band.seen, band.seen_share):
            return None
        return self._sums.take(np.array(numbers)), self._done
