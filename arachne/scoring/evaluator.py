"""Evaluator: computes the deficits of candidate patches."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from arachne.model.backend import ModelBackend, Weights
from arachne.model.values import Array
from arachne.scoring.fitness import FitnessInputs, OutcomeCounts
from arachne.scoring.plain import PlainScorer
from arachne.weights.selection import Selection


class Evaluator(ABC):
    """Computes the deficits of candidate patches. A search by evaluation uses nothing else of the model.

    Args:
        backend: The model.
        fitness_inputs: The inputs that count.
        suspects: The weights candidates change.
    """

    def __init__(self, backend: ModelBackend, fitness_inputs: FitnessInputs, suspects: Selection) -> None:
        self.backend = backend
        self.fitness_inputs = fitness_inputs
        self.suspects = suspects

    @abstractmethod
    def evaluate(self, trials: Array, limits: Array | None = None) -> Array:
        """Return the deficits of candidate patches, int64 `(trials, terms)`.

        Args:
            trials: New values for the suspects, `(trials, k)`, already rounded to what the model stores.
            limits: The limit of each trial's total, int64 `(trials,)`, or by term `(trials, terms)`. Deficits are exact
                if their total is at most the limit; otherwise the returned total is only known to be above the limit
                too. None asks for exact deficits of all trials.
        """

    def compare_with_parents(self, trials: Array, parents: Array, limits: Array | None) -> Array:
        """Return deficits that decide whether each trial replaces its parent, int64 `(trials, terms)`.

        Such a search needs decisions, not sums: whether a trial's total is at most its parent's, and which member is
        the best. Both are the same as with the plain evaluator, and so is the lowest total. Other deficits may be
        estimates: use them only as the limits of the next call.

        Args:
            trials: New values for the suspects, `(trials, k)`, already rounded to what the model stores.
            parents: The candidates they may replace, `(trials, k)`.
            limits: The totals that this method returned for the parents, int64 `(trials,)`; None for a first
                population, which has no parents.
        """
        return self.evaluate(trials, limits)

    @abstractmethod
    def scores(self, trial: Array) -> Array:
        """Return class scores `(n, classes)` of every input that counts, under one candidate."""

    def outcome(self, trial: Array) -> OutcomeCounts:
        """Count the negatives one candidate repairs, and the positives and never-break inputs it breaks."""
        return self.fitness_inputs.outcome(self.fitness_inputs.wrong_by_term(self.scores(trial)))


class PlainEvaluator(Evaluator):
    """Sets a candidate on the model, runs all inputs, and restores the original weights."""

    def __init__(self, backend: ModelBackend, fitness_inputs: FitnessInputs, suspects: Selection) -> None:
        super().__init__(backend, fitness_inputs, suspects)
        self._scorer = PlainScorer(backend, fitness_inputs.padded, suspects)

    def evaluate(self, trials: Array, limits: Array | None = None) -> Array:
        found = np.empty((len(trials), self.fitness_inputs.n_terms), np.int64)
        for number, trial in enumerate(trials):
            found[number] = self.fitness_inputs.deficits_by_term(self.scores(trial))
        return found

    def scores(self, trial: Array, rows: Array | None = None) -> Array:
        """Return class scores under one candidate, of all inputs `(n, classes)` or of some, `(rows, classes)`."""
        if self.fitness_inputs.decisions is not None:
            return self.fitness_inputs.read(self._scorer.scores(trial), rows)
        return self._scorer.scores(trial, rows)[: len(self.fitness_inputs)]

    def weights_with(self, trial: Array) -> Weights:
        """Return the whole parameters a candidate changes, with its values in them."""
        return self._scorer.weights_with(trial)
