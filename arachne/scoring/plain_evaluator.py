"""The reference evaluator: a full forward pass of every input for every candidate. Slow, and simple to verify."""

from __future__ import annotations

import numpy as np

from arachne.model.backend import ModelBackend, Weights
from arachne.model.values import Array
from arachne.scoring.evaluator import Evaluator
from arachne.scoring.fitness import FitnessInputs
from arachne.scoring.plain import PlainScorer
from arachne.weights.selection import Selection


class PlainEvaluator(Evaluator):
    """Puts a candidate into the model, runs it on everything, and puts the original weights back."""

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
