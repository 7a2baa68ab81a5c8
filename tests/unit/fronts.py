"""A searcher with a front: the same change of a few weights in several sizes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from arachne.decisions.losses import cross_entropy
from arachne.model.values import Array
from arachne.plugins.options import option
from arachne.search import Candidate, Problem, Searcher, SearchResult, SearchState

STEPS = (0.0, 0.02, 0.04, 0.06, 0.08, 0.1, 0.15, 40.0)


@dataclass(frozen=True, kw_only=True)
class Slope(Searcher):
    """One gradient step on the negatives, from none at all to one that ruins the model."""

    name = "slope"
    CROSS_FITS = True

    folds: bool = option(False, "Whether candidates say how they do out of fold.")
    first: int = option(0, "The first of the steps to take.")

    def begin(self, problem: Problem, *, rng: np.random.Generator) -> SearchState:
        """All is done at once."""
        counted = problem.fitness_inputs
        negative = np.isin(counted.terms, [n for n, kind in enumerate(counted.kinds) if kind == "negative"])
        inputs = np.asarray(counted.inputs)[negative]
        slopes = problem.backend.weight_gradients(inputs, cross_entropy(counted.labels[negative]))
        slope = np.array([slopes[at.layer, at.parameter][at.index] for at in problem.suspects.addresses])
        return SearchState({"slope": slope / np.abs(slope).max()}, stopped="all steps made")

    def step(self, problem: Problem, state: SearchState, *, rng: np.random.Generator) -> SearchState:
        """Never called."""
        raise NotImplementedError

    def result(self, problem: Problem, state: SearchState) -> SearchResult:
        """A candidate for each size."""
        return problem.result(
            state, *(self._candidate(problem, state.arrays["slope"], step) for step in STEPS[self.first :])
        )

    def _candidate(self, problem: Problem, slope: Array, step: float) -> Candidate:
        suspects = problem.suspects
        values = problem.round_to_storage(suspects.values - step * suspects.deviations.mean() * 4 * slope)
        scores = problem.evaluator.scores(values)
        right = np.argmax(scores, axis=1) == problem.fitness_inputs.labels
        deficits = problem.fitness_inputs.deficits_by_term(scores)
        return Candidate(suspects, values, deficits, held_back=right if self.folds else None)
