"""LocalDeficits: computed in this process, bounds on the fastest route and exact deficits from reference scores."""

from __future__ import annotations

import numpy as np

from arachne.model.backend import ModelBackend
from arachne.model.values import Array
from arachne.scoring.evaluator import PlainEvaluator
from arachne.scoring.fast.bounds import BoundsFinder, Estimates
from arachne.scoring.fast.cache import key_of
from arachne.scoring.fast.deficits import DeficitSource, ExactDeficits
from arachne.scoring.fast.input_order import InputOrder
from arachne.scoring.fast.reference_scores import ReferenceScores
from arachne.scoring.fast.route_choice import choose_route
from arachne.scoring.fast.routes.base import Route
from arachne.scoring.fast.routes.grouped_cuts import GroupedCuts
from arachne.scoring.fitness import FitnessInputs
from arachne.tasks import margins
from arachne.weights.selection import Selection

MIN_WHOLE_EVALUATIONS = 4
"""The first exact evaluations use all inputs, so that the band learns from all of them."""

MAX_SUBSET_SHARE = 0.5
"""A subset of at most this share of the inputs is evaluated alone; otherwise all inputs are."""

MAX_LESSONS = 32
"""The band learns from this many evaluations of all inputs; after that from every eighth."""

MAX_ESTIMATES = 4096
"""The number of candidates whose estimates are kept for comparison with exact deficits."""


class LocalDeficits(DeficitSource):
    """Bounds and exact deficits over inputs in this process.

    Args:
        backend: The model.
        fitness_inputs: The inputs that count.
        suspects: The weights candidates change.
        memory: The bytes that may be kept between candidates.
    """

    def __init__(self, backend: ModelBackend, fitness_inputs: FitnessInputs, suspects: Selection, memory: int) -> None:
        self._fitness_inputs = fitness_inputs
        self._original_values = suspects.values
        plain = PlainEvaluator(backend, fitness_inputs, suspects)
        original = plain.scores(suspects.values)
        order = InputOrder(margins(original, fitness_inputs.labels))
        self.cuts = GroupedCuts(backend, fitness_inputs, suspects, order.order, memory)
        self.reference = ReferenceScores(plain, self.cuts.whole)
        route, self.band = choose_route(plain, self.cuts, self.reference, original, memory)
        self._finder = BoundsFinder(route, self.band, fitness_inputs, order)
        # By a full pass, once: a backend may use other code for weights equal to those of its file.
        self._of_original = self._exact_from(original, slice(None))
        self._estimated: dict[bytes, tuple[int, float]] = {}
        self._revision = 0

    @property
    def route(self) -> Route:
        """The route that was chosen."""
        return self._finder.route

    @property
    def looked_at(self) -> int:
        """The number of pairs of candidate and input that were scored on the route."""
        return self._finder.looked_at

    @property
    def plain_evaluations(self) -> int:
        """The number of candidates with exact scores, after the first probes."""
        return self.reference.whole_passes + self.reference.subset_passes

    @property
    def revision(self) -> int:
        return self._revision

    def bounds(self, trials: Array, ceilings: Array | None, wave: int | None = None) -> Estimates:
        found = self._finder.estimate(trials, ceilings, wave)
        for number in np.flatnonzero(found.complete & np.isfinite(found.slack)):
            self._estimated[key_of(trials[number])] = int(found.deficits[number].sum()), float(found.slack[number])
        while len(self._estimated) > MAX_ESTIMATES:
            del self._estimated[next(iter(self._estimated))]
        return found

    def exact(self, trial: Array) -> ExactDeficits:
        if np.array_equal(trial, self._original_values):
            return self._of_original
        estimate = self._estimated.pop(key_of(trial), None)
        subset = (
            self.reference.has_subsets and self.route.cheap and self.reference.whole_passes >= MIN_WHOLE_EVALUATIONS
        )
        found = (self._from_subset(trial) if subset else None) or self._from_all(trial)
        if estimate is not None:
            total, slack = estimate
            self._note(self.band.learn_sum(float(total - found.deficits.sum()), slack))
        return found

    def scores(self, trial: Array) -> Array:
        return self.reference.scores(trial)

    def next_generation(self) -> None:
        self._finder.next_generation()

    def _from_subset(self, trial: Array) -> ExactDeficits | None:
        """Compute exact deficits from reference scores of the inputs that may be wrong; the others have deficit 0.

        None if these are most inputs, or if the scores show that the band was too narrow to find them.
        """
        with np.errstate(all="ignore"):
            found, scale = self.route.scores(trial)
            rows = self._finder.not_certainly_right(found, scale)
            if len(rows) > MAX_SUBSET_SHARE * len(found):
                return None
            rows = (
                rows if len(rows) else np.array([0])
            )  # one input, so that there are scores; if it is right its deficit is 0
            scores = self.reference.of_rows(trial, rows)
            if not self._note(self.band.learn(found[rows], scale[rows], scores, self._fitness_inputs.labels[rows])):
                return None
        return self._exact_from(scores, rows)

    def _from_all(self, trial: Array) -> ExactDeficits:
        """Compute exact deficits from reference scores of all inputs; the band learns from them too."""
        scores = self.reference.scores(trial)
        if self.reference.whole_passes <= MAX_LESSONS or self.reference.whole_passes % 8 == 0:
            with np.errstate(all="ignore"):
                found, scale = self.route.scores(trial)
                if self.route.cheap:
                    self.reference.check_subsets(trial, scores, self._finder.not_certainly_right(found, scale))
                self._note(self.band.learn(found, scale, scores, self._fitness_inputs.labels))
        return self._exact_from(scores, slice(None))

    def _note(self, within_band: bool) -> bool:
        """Invalidate all earlier bounds if the band turned out too narrow; return the argument."""
        if not within_band:
            self._estimated.clear()
            self._revision += 1
        return within_band

    def _exact_from(self, scores: Array, rows: Array | slice) -> ExactDeficits:
        """Compute exact deficits from reference scores of some inputs; all others are right."""
        inputs = self._fitness_inputs
        return ExactDeficits(inputs.deficits_by_term(scores, rows), inputs.wrong_by_term(scores, rows))
