"""DecidingEvaluator: takes the plain evaluator's decisions from bounds, and from exact deficits where bounds overlap.

A trial whose lower bound exceeds its parent's upper bound is rejected, however few inputs that took; one whose upper
bound is at most its parent's lower bound is accepted. Otherwise exact deficits are computed: for the one of the two
whose bounds are wider, and for the other as well if its bounds still overlap. So a decision either follows from valid
bounds, or is the plain evaluator's.

`evaluate` returns exact deficits of every trial within its limit. `compare_with_parents` may return estimates, but they
are never compared: the parents' bounds are looked up, or found again, by the parents' values, and the returned totals
are shifted to the decided side of the limit. No estimate is as low as the lowest total of a population, because every
candidate that could be the lowest gets exact deficits. Hence the best member and its deficits, which stop the search
and are its result, are the plain evaluator's too.

Why the bounds hold
    They follow from a route's scores and the error band (`bounds`): an input whose margin lies outside the band is
    right or wrong for certain; one inside it adds nothing to the lower bound and the deficit of a wrong input to the
    upper one; losses are widened by the band. This rests on two assumptions: the plain evaluator is deterministic, and
    no score of the route is further off than the band. The band is learnt from whole passes over the inputs
    (`error_band`). Every further exact evaluation checks it: a difference beyond the band widens it and invalidates all
    earlier bounds.

Where the time goes
    One candidate in a hundred needs exact deficits, and if a cut returns the same bits it replaces the full pass
    (`reference_scores`). Bounds are computed in NumPy from the touched weights, or by the backend's cut (`routes`).
"""

from __future__ import annotations

import numpy as np

from arachne.model.backend import ModelBackend
from arachne.model.lazy import MEMORY
from arachne.model.values import Array
from arachne.scoring.evaluator import Evaluator
from arachne.scoring.fast.cache import DeficitCache, KnownTotal
from arachne.scoring.fast.deficits import Bounds, DeficitSource
from arachne.scoring.fast.local import LocalDeficits
from arachne.scoring.fitness import FitnessInputs, OutcomeCounts
from arachne.weights.selection import Selection


class DecidingEvaluator(Evaluator):
    """Takes the plain evaluator's decisions from bounds and exact deficits.

    Args:
        backend: The model.
        fitness_inputs: The inputs that count.
        suspects: The weights candidates change.
        source: Computes bounds and exact deficits of candidates over these inputs.
    """

    def __init__(
        self, backend: ModelBackend, fitness_inputs: FitnessInputs, suspects: Selection, source: DeficitSource
    ) -> None:
        super().__init__(backend, fitness_inputs, suspects)
        self._source = source
        self._cache = DeficitCache()
        self._revision = source.revision

    def evaluate(self, trials: Array, limits: Array | None = None) -> Array:
        trials = np.ascontiguousarray(trials, np.float64)
        if limits is None:
            return np.stack([self._exact(trial).deficits for trial in trials])
        ceilings = limits if limits.ndim == 1 else limits.sum(axis=1)
        found = self._estimate(trials, ceilings)
        self._source.next_generation()
        deficits = found.deficits.copy()
        within = found.complete & (found.low <= ceilings)
        for number in np.flatnonzero(within):
            deficits[number] = self._exact(trials[number]).deficits
        return _on_their_side(deficits, ceilings, within & (deficits.sum(axis=1) <= ceilings))

    def compare_with_parents(self, trials: Array, parents: Array, limits: Array | None) -> Array:
        trials = np.ascontiguousarray(trials, np.float64)
        if limits is None:
            return self._first_population(trials)
        parents = np.ascontiguousarray(parents, np.float64)
        rivals = self._bounds_of(parents)
        highest = np.array([rival.high for rival in rivals])
        found = self._estimate(trials, highest)
        self._source.next_generation()
        winners: dict[int, KnownTotal] = {}
        for number in np.flatnonzero(found.complete & (found.low <= highest)).tolist():
            known = self._cache[trials[number]] or self._exact(trials[number])
            won, known = self._decide(trials[number], known, parents[number], rivals[number])
            if won:
                winners[number] = known
        deficits, wins = found.deficits.copy(), np.zeros(len(trials), bool)
        for number, known in self._with_lowest_exact(trials, winners, int(limits.min())).items():
            wins[number] = True
            deficits[number] = known.deficits
        self._cache.trim([*parents, *trials])
        return _on_their_side(deficits, limits, wins)

    def scores(self, trial: Array) -> Array:
        return self._source.scores(trial)

    def outcome(self, trial: Array) -> OutcomeCounts:
        known = self._exact(np.ascontiguousarray(trial, np.float64))
        if known.wrong is None:
            raise ValueError("exact deficits count the wrong inputs of each term")
        return self.fitness_inputs.outcome(known.wrong)

    def _first_population(self, trials: Array) -> Array:
        known = self._with_lowest_exact(trials, dict(enumerate(self._bounds_of(trials))), None)
        return np.stack([known[number].deficits for number in range(len(trials))])

    def _with_lowest_exact(
        self, trials: Array, known: dict[int, KnownTotal], lowest: int | None
    ) -> dict[int, KnownTotal]:
        """Replace bounds by exact totals for every candidate that could be the minimum, or as low as `lowest`."""
        known = dict(known)
        for number in sorted(known, key=lambda number: known[number].high):
            bar = min([*([] if lowest is None else [lowest]), *(total.high for total in known.values())])
            if known[number].low <= bar:
                known[number] = self._exact(trials[number])
        return known

    def _bounds_of(self, candidates: Array) -> list[KnownTotal]:
        """Return bounds for all candidates, computing missing ones."""
        unknown = [number for number, candidate in enumerate(candidates) if self._cache[candidate] is None]
        if unknown:
            self._estimate(candidates[unknown], None)
        return [self._cache[candidate] or self._exact(candidate) for candidate in candidates]

    def _decide(self, trial: Array, known: KnownTotal, parent: Array, rival: KnownTotal) -> tuple[bool, KnownTotal]:
        """Decide whether the exact total of a trial is at most its parent's; return that and the trial's bounds."""
        if np.array_equal(trial, parent):
            return True, rival
        if known.high <= rival.low or known.low > rival.high:
            return known.high <= rival.low, known
        # The wider bounds first: often those of the other need not be narrowed then.
        if known.width >= rival.width:
            known = self._exact(trial)
            rival = self._exact(parent) if rival.low < known.high <= rival.high else rival
        else:
            rival = self._exact(parent)
            known = self._exact(trial) if known.low <= rival.high < known.high else known
        return known.high <= rival.low, known

    def _estimate(self, trials: Array, ceilings: Array | None) -> Bounds:
        """Compute bounds, and cache the complete ones."""
        found = self._source.bounds(trials, ceilings)
        self._follow_revision()
        for number in np.flatnonzero(found.complete):
            known = self._cache[trials[number]]
            if known is None or known.width:
                low, high = int(found.low[number]), int(found.high[number])
                self._cache[trials[number]] = KnownTotal(found.deficits[number], low, high)
        return found

    def _exact(self, trial: Array) -> KnownTotal:
        """Return the exact total of a candidate, computed once."""
        known = self._cache[trial]
        if known is None or known.wrong is None:
            known = KnownTotal.exactly(self._source.exact(trial))
            self._follow_revision()
            self._cache[trial] = known
        return known

    def _follow_revision(self) -> None:
        """Evict bounds that may no longer hold."""
        if self._source.revision != self._revision:
            self._revision = self._source.revision
            self._cache.forget_estimates()


class FastEvaluator(DecidingEvaluator):
    """Decides from bounds and exact deficits computed in this process.

    Args:
        backend: The model.
        fitness_inputs: The inputs that count.
        suspects: The weights candidates change.
        memory: The bytes that may be kept between candidates.
    """

    def __init__(
        self, backend: ModelBackend, fitness_inputs: FitnessInputs, suspects: Selection, *, memory: int = MEMORY
    ) -> None:
        self.source = LocalDeficits(backend, fitness_inputs, suspects, memory)
        super().__init__(backend, fitness_inputs, suspects, self.source)


def _on_their_side(deficits: Array, limits: Array, wins: Array) -> Array:
    """Shift deficits so that totals are at most their limits where a trial wins, and above them where it does not."""
    excess = deficits.sum(axis=1) - limits
    rows = np.arange(len(deficits))
    largest = deficits.argmax(axis=1)
    deficits[rows, largest] -= np.where(wins, np.maximum(excess, 0), np.minimum(excess - 1, 0))
    return deficits
