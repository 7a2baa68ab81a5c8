"""Decisions from facts: the plain evaluator's, wherever the facts come from.

A trial whose lower bound exceeds its parent's upper bound is rejected, however few inputs it took to find that out; one
whose upper bound is at most its parent's lower bound is accepted. Otherwise exact facts are asked for: about the one
of the two whose bounds are wider, and about the other as well where its bounds still leave the answer open. So a
decision either follows from bounds that hold, or is the plain evaluator's own.

`evaluate` returns exact deficits of every trial within its limit. `challenge` may return estimates, but they are never
compared: the parents' bounds are looked up, or found again, by the parents' values, and what is returned is shifted to
the side of the limit that was decided. No estimate is as low as the lowest total of a population, because exact facts
are asked about every candidate that could be. Hence the best member and its deficits, which stop the search and are
its result, are the plain evaluator's too.
"""

from __future__ import annotations

import numpy as np

from arachne.backend import ModelBackend
from arachne.evaluate.base import Evaluator
from arachne.evaluate.fitness import FitnessInputs, Outcome
from arachne.evaluate.judging.facts import Bounds, Facts
from arachne.evaluate.judging.ledger import KnownTotal, Ledger
from arachne.suspects import Suspects
from arachne.values import Array


class DecidingEvaluator(Evaluator):
    """Decides from facts as the plain evaluator would.

    Args:
        backend: The model.
        fitness_inputs: The inputs that count.
        suspects: The weights candidates change.
        facts: What answers questions about candidates over these inputs.
    """

    def __init__(self, backend: ModelBackend, fitness_inputs: FitnessInputs, suspects: Suspects, facts: Facts) -> None:
        super().__init__(backend, fitness_inputs, suspects)
        self._facts = facts
        self._ledger = Ledger()
        self._revision = facts.revision

    def evaluate(self, trials: Array, limits: Array | None = None) -> Array:
        trials = np.ascontiguousarray(trials, np.float64)
        if limits is None:
            return np.stack([self._exact(trial).deficits for trial in trials])
        ceilings = limits if limits.ndim == 1 else limits.sum(axis=1)
        found = self._estimate(trials, ceilings)
        self._facts.next_generation()
        deficits = found.deficits.copy()
        within = found.complete & (found.low <= ceilings)
        for number in np.flatnonzero(within):
            deficits[number] = self._exact(trials[number]).deficits
        return _on_their_side(deficits, ceilings, within & (deficits.sum(axis=1) <= ceilings))

    def challenge(self, trials: Array, parents: Array, limits: Array | None) -> Array:
        trials = np.ascontiguousarray(trials, np.float64)
        if limits is None:
            return self._first_population(trials)
        parents = np.ascontiguousarray(parents, np.float64)
        rivals = self._known(parents)
        highest = np.array([rival.high for rival in rivals])
        found = self._estimate(trials, highest)
        self._facts.next_generation()
        winners: dict[int, KnownTotal] = {}
        for number in np.flatnonzero(found.complete & (found.low <= highest)).tolist():
            known = self._ledger[trials[number]] or self._exact(trials[number])
            won, known = self._decide(trials[number], known, parents[number], rivals[number])
            if won:
                winners[number] = known
        deficits, wins = found.deficits.copy(), np.zeros(len(trials), bool)
        for number, known in self._with_lowest_exact(trials, winners, int(limits.min())).items():
            wins[number] = True
            deficits[number] = known.deficits
        self._ledger.trim([*parents, *trials])
        return _on_their_side(deficits, limits, wins)

    def scores(self, trial: Array) -> Array:
        return self._facts.scores(trial)

    def outcome(self, trial: Array) -> Outcome:
        known = self._exact(np.ascontiguousarray(trial, np.float64))
        if known.wrong is None:
            raise ValueError("exact facts count the wrong inputs of each term")
        return self.fitness_inputs.outcome(known.wrong)

    def _first_population(self, trials: Array) -> Array:
        known = self._with_lowest_exact(trials, dict(enumerate(self._known(trials))), None)
        return np.stack([known[number].deficits for number in range(len(trials))])

    def _with_lowest_exact(
        self, trials: Array, known: dict[int, KnownTotal], lowest: int | None
    ) -> dict[int, KnownTotal]:
        """The same, with exact facts about every candidate whose total could be the lowest, or as low as `lowest`."""
        known = dict(known)
        for number in sorted(known, key=lambda number: known[number].high):
            bar = min([*([] if lowest is None else [lowest]), *(total.high for total in known.values())])
            if known[number].low <= bar:
                known[number] = self._exact(trials[number])
        return known

    def _known(self, candidates: Array) -> list[KnownTotal]:
        """What is known about candidates, after complete bounds were found for those about whom nothing was."""
        unknown = [number for number, candidate in enumerate(candidates) if self._ledger[candidate] is None]
        if unknown:
            self._estimate(candidates[unknown], None)
        return [self._ledger[candidate] or self._exact(candidate) for candidate in candidates]

    def _decide(self, trial: Array, known: KnownTotal, parent: Array, rival: KnownTotal) -> tuple[bool, KnownTotal]:
        """Whether the plain evaluator's total of a trial is at most its parent's, and what is known of it now."""
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
        """Ask for bounds, and remember the complete ones."""
        found = self._facts.bounds(trials, ceilings)
        self._follow_revision()
        for number in np.flatnonzero(found.complete):
            known = self._ledger[trials[number]]
            if known is None or known.width:
                low, high = int(found.low[number]), int(found.high[number])
                self._ledger[trials[number]] = KnownTotal(found.deficits[number], low, high)
        return found

    def _exact(self, trial: Array) -> KnownTotal:
        """Exact facts about a candidate, which are asked for once."""
        known = self._ledger[trial]
        if known is None or known.wrong is None:
            known = KnownTotal.exactly(self._facts.exact(trial))
            self._follow_revision()
            self._ledger[trial] = known
        return known

    def _follow_revision(self) -> None:
        """Forget bounds that may no longer hold."""
        if self._facts.revision != self._revision:
            self._revision = self._facts.revision
            self._ledger.forget_estimates()


def _on_their_side(deficits: Array, limits: Array, wins: Array) -> Array:
    """Deficits whose totals are at most their limits where a trial wins, and above them where it does not."""
    excess = deficits.sum(axis=1) - limits
    rows = np.arange(len(deficits))
    largest = deficits.argmax(axis=1)
    deficits[rows, largest] -= np.where(wins, np.maximum(excess, 0), np.minimum(excess - 1, 0))
    return deficits
