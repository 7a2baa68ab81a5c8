"""Facts that are worked out in this process: bounds on the fastest route, exact deficits from reference scores."""

from __future__ import annotations

import numpy as np

from arachne.backend import ModelBackend
from arachne.evaluate.fitness import FitnessInputs
from arachne.evaluate.judging.bounds import BoundsFinder, Estimates
from arachne.evaluate.judging.facts import ExactFacts, Facts
from arachne.evaluate.judging.input_order import HardFirst
from arachne.evaluate.judging.ledger import key_of
from arachne.evaluate.judging.reference_scores import ReferenceScores
from arachne.evaluate.judging.route_choice import choose_route
from arachne.evaluate.plain import PlainEvaluator
from arachne.evaluate.routes.base import Route
from arachne.evaluate.routes.grouped_cuts import GroupedCuts
from arachne.losses import margins
from arachne.suspects import Suspects
from arachne.values import Array

FIRST_WHOLE = 4
"""The first candidates that need exact facts are evaluated on all inputs, so that the band learns from all inputs."""

LARGEST_SUBSET = 0.5
"""Only up to this share of the inputs is evaluated without the others; beyond it all are."""

LESSONS = 32
"""The band learns from this many evaluations of all inputs; after that from every eighth."""

REMEMBERED = 4096
"""How many candidates' estimates are kept for comparison with exact deficits."""


class LocalFacts(Facts):
    """Facts about inputs that are in this process.

    Args:
        backend: The model.
        fitness_inputs: The inputs that count.
        suspects: The weights candidates change.
        memory: Budget for what is kept between candidates, in bytes.
    """

    def __init__(self, backend: ModelBackend, fitness_inputs: FitnessInputs, suspects: Suspects, memory: int) -> None:
        self._fitness_inputs = fitness_inputs
        self._original_values = suspects.values
        plain = PlainEvaluator(backend, fitness_inputs, suspects)
        original = plain.scores(suspects.values)
        order = HardFirst(margins(original, fitness_inputs.labels))
        self.cuts = GroupedCuts(backend, fitness_inputs, suspects, order.order, memory)
        self.reference = ReferenceScores(plain, self.cuts.whole)
        route, self.band = choose_route(plain, self.cuts, self.reference, original, memory)
        self._finder = BoundsFinder(route, self.band, fitness_inputs, order)
        # By a full pass, once: a backend may compute in another way with the very weights of its own file.
        self._of_original = self._exact_from(original, slice(None))
        self._estimated: dict[bytes, tuple[int, float]] = {}
        self._revision = 0

    @property
    def route(self) -> Route:
        """The route that was chosen."""
        return self._finder.route

    @property
    def looked_at(self) -> int:
        """How many pairs of candidate and input were scored on the route."""
        return self._finder.looked_at

    @property
    def plain_evaluations(self) -> int:
        """How many candidates exact scores were computed for, after the first probes."""
        return self.reference.whole_passes + self.reference.subset_passes

    @property
    def revision(self) -> int:
        return self._revision

    def bounds(self, trials: Array, ceilings: Array | None, wave: int | None = None) -> Estimates:
        found = self._finder.estimate(trials, ceilings, wave)
        for number in np.flatnonzero(found.complete & np.isfinite(found.slack)):
            self._estimated[key_of(trials[number])] = int(found.deficits[number].sum()), float(found.slack[number])
        while len(self._estimated) > REMEMBERED:
            del self._estimated[next(iter(self._estimated))]
        return found

    def exact(self, trial: Array) -> ExactFacts:
        if np.array_equal(trial, self._original_values):
            return self._of_original
        estimate = self._estimated.pop(key_of(trial), None)
        subset = self.reference.has_subsets and self.route.cheap and self.reference.whole_passes >= FIRST_WHOLE
        found = (self._from_subset(trial) if subset else None) or self._from_all(trial)
        if estimate is not None:
            total, slack = estimate
            self._note(self.band.learn_sum(float(total - found.deficits.sum()), slack))
        return found

    def scores(self, trial: Array) -> Array:
        return self.reference.scores(trial)

    def next_generation(self) -> None:
        self._finder.next_generation()

    def _from_subset(self, trial: Array) -> ExactFacts | None:
        """From reference scores of the inputs that may be wrong; the others are right, and their deficits 0.

        None where that is most inputs, or where the scores show that the band was too narrow to say which they are.
        """
        with np.errstate(all="ignore"):
            found, scale = self.route.scores(trial)
            rows = self._finder.not_certainly_right(found, scale)
            if len(rows) > LARGEST_SUBSET * len(found):
                return None
            rows = (
                rows if len(rows) else np.array([0])
            )  # one input, so that there are scores; if it is right its deficit is 0
            scores = self.reference.of_rows(trial, rows)
            if not self._note(self.band.learn(found[rows], scale[rows], scores, self._fitness_inputs.labels[rows])):
                return None
        return self._exact_from(scores, rows)

    def _from_all(self, trial: Array) -> ExactFacts:
        """From reference scores of all inputs, from which the band learns too."""
        scores = self.reference.scores(trial)
        if self.reference.whole_passes <= LESSONS or self.reference.whole_passes % 8 == 0:
            with np.errstate(all="ignore"):
                found, scale = self.route.scores(trial)
                if self.route.cheap:
                    self.reference.check_subsets(trial, scores, self._finder.not_certainly_right(found, scale))
                self._note(self.band.learn(found, scale, scores, self._fitness_inputs.labels))
        return self._exact_from(scores, slice(None))

    def _note(self, within_band: bool) -> bool:
        """Put all bounds given so far out of use where the band turned out too narrow; returns its argument."""
        if not within_band:
            self._estimated.clear()
            self._revision += 1
        return within_band

    def _exact_from(self, scores: Array, rows: Array | slice) -> ExactFacts:
        """From reference scores of some inputs, all others being right."""
        inputs = self._fitness_inputs
        return ExactFacts(inputs.deficits_by_term(scores, rows), inputs.wrong_by_term(scores, rows))
