"""The fast evaluator: the plain one's decisions, hundreds of times faster.

Why the decisions are the same
    *Facts.* For every candidate the ledger holds two numbers that bound the plain evaluator's total. They follow from a
    route's scores and the error band (`judging`): inputs outside the band are right or wrong for certain, inputs inside
    it count as nothing below and as wrong above, and losses are widened by the band.

    *Decisions.* A trial whose lower bound passes its parent's upper bound is rejected, wherever in the inputs that
    happens; one whose upper bound is at most its parent's lower bound is accepted. Otherwise the plain evaluator
    decides about the one of the two with the wider bounds, and about the other as well where its bounds still enclose
    the answer. It is asked about the inputs that may be wrong, where it can be (`truth`): those that are right for
    certain cost nothing. So a decision is either forced by bounds that hold, or is the plain evaluator's own.

    *Numbers.* `evaluate` hands out the plain evaluator's deficits for everything within its limit. `challenge` may hand
    out estimates, but they are never compared: the parents' bounds are looked up, or found again, by the parents'
    values, and what is returned is made to lie on the side of the limit that was decided. No estimate is as low as the
    lowest total of a population, because whatever could be is evaluated plainly; hence the best member and its
    deficits, which stop the search and are its result, are the plain evaluator's too.

    *What it rests on.* That the plain evaluator is deterministic, and that no score is further off than the band. The
    band is learnt from whole passes over the inputs (`band`), and every further plain evaluation checks it: a
    difference beyond it would widen it and put all estimates out of use.

Where the time goes
    The plain evaluator is asked about one candidate in a hundred. Where a cut gives the same bits it stands in for the
    full pass (`truth`). All else is NumPy on what the candidates touch (`dense`, `convolution`), or the backend's cut.
"""

from __future__ import annotations

import numpy as np

from arachne.backend import ModelBackend
from arachne.evaluate.base import Evaluator, Stake, by_term, input_deficits
from arachne.evaluate.choosing import choose_route
from arachne.evaluate.cuts import Cuts
from arachne.evaluate.judging import Estimates, Judge
from arachne.evaluate.ledger import Entry, Ledger, exact_entry
from arachne.evaluate.order import HardFirst
from arachne.evaluate.plain import PlainEvaluator
from arachne.evaluate.routes import Route
from arachne.evaluate.truth import Truth
from arachne.losses import margins
from arachne.suspects import Suspects
from arachne.values import Array

MEMORY = 2 << 30

WHOLE = 4
"""So many candidates are evaluated plainly on all inputs before some may do: the band learns from both."""

MOST = 0.5
"""Up to this share of the inputs is evaluated without the others."""

LESSONS = 32
"""So many evaluations of all inputs teach the band; after that every eighth."""


class FastEvaluator(Evaluator):
    """Judges candidates on the fastest route there is, and asks the plain evaluator where rounding could decide.

    Args:
        backend: The model.
        stake: The inputs that count.
        suspects: The weights candidates change.
        memory: Budget for what is kept between candidates, in bytes.
    """

    def __init__(self, backend: ModelBackend, stake: Stake, suspects: Suspects, *, memory: int = MEMORY) -> None:
        super().__init__(backend, stake, suspects)
        plain = PlainEvaluator(backend, stake, suspects)
        original = plain.scores(suspects.values)
        order = HardFirst(margins(original, stake.labels))
        self.cuts = Cuts(backend, stake, suspects, order.order, memory)
        self.truth = Truth(plain, self.cuts.whole)
        self._ledger = Ledger()
        route, self.band = choose_route(plain, self.cuts, self.truth, original, memory)
        self._judge = Judge(route, self.band, stake, order)
        # By a full pass, once and for all: a backend may compute with weights of its own file in another way.
        self._of_original = self._entry_of(original, slice(None))

    @property
    def route(self) -> Route:
        """The route that was chosen."""
        return self._judge.route

    @property
    def looked_at(self) -> int:
        """How many pairs of candidate and input the route was asked about."""
        return self._judge.met

    @property
    def plain_evaluations(self) -> int:
        """How many candidates the plain evaluator was asked about, after the first probes."""
        return self.truth.passes + self.truth.parts

    def evaluate(self, trials: Array, limits: Array | None = None) -> Array:
        trials = np.ascontiguousarray(trials, np.float64)
        if limits is None:
            return np.stack([self._exact(trial).deficits for trial in trials])
        ceilings = limits if limits.ndim == 1 else limits.sum(axis=1)
        found = self._estimate(trials, ceilings)
        self._judge.next_generation()
        deficits = found.deficits.copy()
        within = found.complete & (found.low <= ceilings)
        for number in np.flatnonzero(within):
            deficits[number] = self._exact(trials[number]).deficits
        return _on_their_side(deficits, ceilings, within & (deficits.sum(axis=1) <= ceilings))

    def challenge(self, trials: Array, parents: Array, limits: Array | None) -> Array:
        trials = np.ascontiguousarray(trials, np.float64)
        if limits is None:
            return self._first(trials)
        parents = np.ascontiguousarray(parents, np.float64)
        rivals = self._rivals(parents)
        highest = np.array([rival.high for rival in rivals])
        found = self._estimate(trials, highest)
        self._judge.next_generation()
        winners: dict[int, Entry] = {}
        for number in np.flatnonzero(found.complete & (found.low <= highest)).tolist():
            entry = self._ledger[trials[number]] or self._exact(trials[number])
            won, entry = self._decide(trials[number], entry, parents[number], rivals[number])
            if won:
                winners[number] = entry
        deficits, wins = found.deficits.copy(), np.zeros(len(trials), bool)
        sure = self._with_lowest_exact({number: trials[number] for number in winners}, winners, int(limits.min()))
        for number, entry in sure.items():
            wins[number] = True
            deficits[number] = entry.deficits
        self._ledger.trim([*parents, *trials])
        return _on_their_side(deficits, limits, wins)

    def bounds(self, trials: Array) -> Estimates:
        """Between what the plain evaluator's totals lie, as the route alone can tell."""
        return self._judge.estimate(np.ascontiguousarray(trials, np.float64), None)

    def scores(self, trial: Array) -> Array:
        return self.truth.scores(trial)

    def outcome(self, trial: Array) -> tuple[int, int]:
        wrong = self._exact(np.ascontiguousarray(trial, np.float64)).wrong
        if wrong is None:
            raise ValueError("an exact entry counts what is wrong")
        sizes = np.bincount(self.stake.terms, minlength=self.stake.n_terms)
        return int((sizes - wrong)[1:].sum()), int(wrong[0])

    def _first(self, trials: Array) -> Array:
        entries = dict(enumerate(self._rivals(trials)))
        sure = self._with_lowest_exact(dict(enumerate(trials)), entries, None)
        return np.stack([sure[number].deficits for number in range(len(trials))])

    def _with_lowest_exact(
        self, trials: dict[int, Array], entries: dict[int, Entry], lowest: int | None
    ) -> dict[int, Entry]:
        """The entries, those that could be as low as the lowest of all, or as `lowest`, being the plain evaluator's."""

        def bar() -> int:
            return min([*([] if lowest is None else [lowest]), *(entry.high for entry in entries.values())])

        entries = dict(entries)
        for number in sorted(entries, key=lambda number: entries[number].high):
            if entries[number].low <= bar():
                entries[number] = self._exact(trials[number])
        return entries

    def _rivals(self, candidates: Array) -> list[Entry]:
        """Entries of candidates, which are judged to the end where they are not known."""
        unknown = [number for number, candidate in enumerate(candidates) if self._ledger[candidate] is None]
        if unknown:
            self._estimate(candidates[unknown], None)
        return [self._ledger[candidate] or self._exact(candidate) for candidate in candidates]

    def _decide(self, trial: Array, entry: Entry, parent: Array, rival: Entry) -> tuple[bool, Entry]:
        """Whether the plain evaluator's total of a trial is at most its parent's."""
        if np.array_equal(trial, parent):
            return True, rival
        if entry.high <= rival.low or entry.low > rival.high:
            return entry.high <= rival.low, entry
        # The wider bounds first: often those of the other need not be narrowed then.
        if entry.high - entry.low >= rival.high - rival.low:
            entry = self._exact(trial)
            rival = self._exact(parent) if rival.low < entry.high <= rival.high else rival
        else:
            rival = self._exact(parent)
            entry = self._exact(trial) if entry.low <= rival.high < entry.high else entry
        return entry.high <= rival.low, entry

    def _estimate(self, trials: Array, ceilings: Array | None) -> Estimates:
        """Judge candidates on the route, and enter those that were judged to the end."""
        found = self._judge.estimate(trials, ceilings)
        for number in np.flatnonzero(found.complete):
            known = self._ledger[trials[number]]
            if known is None or not known.exact:
                low, high = int(found.low[number]), int(found.high[number])
                self._ledger[trials[number]] = Entry(found.deficits[number], low, high, float(found.slack[number]))
        return found

    def _exact(self, trial: Array) -> Entry:
        """What the plain evaluator says about a candidate."""
        if np.array_equal(trial, self.suspects.values):
            return self._of_original
        known = self._ledger[trial]
        if known is not None and known.exact and known.wrong is not None:
            return known
        some = self.truth.has_parts and self.route.cheap and self.truth.passes >= WHOLE
        return (self._from_some(trial, known) if some else None) or self._from_all(trial, known)

    def _from_some(self, trial: Array, known: Entry | None) -> Entry | None:
        """The plain evaluator is asked about the inputs that may be wrong, the others cost nothing for certain.

        None where that would be most of them, or where the answer shows that the band was too narrow.
        """
        with np.errstate(all="ignore"):
            found, scale = self.route.scores(trial)
            rows = self._judge.not_right(found, scale)
            if len(rows) > MOST * len(found):
                return None
            rows = rows if len(rows) else np.array([0])  # one that is right costs nothing, as it should
            scores = self.truth.some(trial, rows)
            if not self.band.learn(found[rows], scale[rows], scores, self.stake.labels[rows]):
                self._ledger.forget_estimates()
                return None
        return self._enter(trial, self._entry_of(scores, rows), known)

    def _from_all(self, trial: Array, known: Entry | None) -> Entry:
        """The plain evaluator is asked about all inputs; now and then the band learns from it."""
        scores = self.truth.scores(trial)
        if self.truth.passes <= LESSONS or self.truth.passes % 8 == 0:
            with np.errstate(all="ignore"):
                found, scale = self.route.scores(trial)
                if self.route.cheap:
                    self.truth.check_parts(trial, scores, self._judge.not_right(found, scale))
                if not self.band.learn(found, scale, scores, self.stake.labels):
                    self._ledger.forget_estimates()
        return self._enter(trial, self._entry_of(scores, slice(None)), known)

    def _enter(self, trial: Array, entry: Entry, known: Entry | None) -> Entry:
        """Enter what the plain evaluator says, and learn from how far the estimate was off."""
        within = True
        if known is not None and np.isfinite(known.slack):
            within = self.band.learn_sum(float(known.deficits.sum() - entry.low), known.slack)
        if not within:
            self._ledger.forget_estimates()
        self._ledger[trial] = entry
        return entry

    def _entry_of(self, scores: Array, rows: Array | slice) -> Entry:
        """From the plain scores of some inputs, where no other is wrong."""
        n, terms, labels = self.stake.n_terms, self.stake.terms[rows], self.stake.labels[rows]
        deficits = input_deficits(scores, labels, self.stake.weights[rows])
        wrong = np.argmax(scores, axis=1) != labels
        return exact_entry(by_term(deficits, terms, n), np.bincount(terms[wrong], minlength=n))


def _on_their_side(deficits: Array, limits: Array, wins: Array) -> Array:
    """Deficits whose totals are at most their limits where a trial wins, and above them where it does not."""
    excess = deficits.sum(axis=1) - limits
    rows = np.arange(len(deficits))
    largest = deficits.argmax(axis=1)
    deficits[rows, largest] -= np.where(wins, np.maximum(excess, 0), np.minimum(excess - 1, 0))
    return deficits
