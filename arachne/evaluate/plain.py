"""The reference evaluator: a full forward pass of every input for every candidate. Slow, and right by inspection."""

from __future__ import annotations

import numpy as np

from arachne.backend import ModelBackend, Weights, restored
from arachne.evaluate.base import Evaluator
from arachne.evaluate.fitness import FitnessInputs
from arachne.suspects import Suspects
from arachne.values import Array, take


class PlainEvaluator(Evaluator):
    """Puts a candidate into the model, runs it on everything, and puts the original weights back."""

    def __init__(self, backend: ModelBackend, fitness_inputs: FitnessInputs, suspects: Suspects) -> None:
        super().__init__(backend, fitness_inputs, suspects)
        self._original = {
            (layer, parameter): backend.get_weights(layer)[parameter] for layer, parameter in suspects.parameters
        }

    def evaluate(self, trials: Array, limits: Array | None = None) -> Array:
        found = np.empty((len(trials), self.fitness_inputs.n_terms), np.int64)
        for number, trial in enumerate(trials):
            found[number] = self.fitness_inputs.deficits_by_term(self.scores(trial))
        return found

    def scores(self, trial: Array, rows: Array | None = None) -> Array:
        """Class scores under one candidate, of all inputs `(n, classes)` or of some, `(rows, classes)`."""
        padded, n = self.fitness_inputs.padded, len(self.fitness_inputs)
        inputs = padded if rows is None else take(padded, rows)
        with restored(self.backend, self.suspects.parameters):
            for (layer, parameter), values in self.weights_with(trial).items():
                self.backend.set_weights(layer, parameter, values)
            with np.errstate(over="ignore", invalid="ignore"):  # a candidate that overflows simply loses
                return self.backend.forward(inputs)[:n]

    def weights_with(self, trial: Array) -> Weights:
        """The whole parameters a candidate changes, with its values in them."""
        weights = {name: values.copy() for name, values in self._original.items()}
        for place in self.suspects.places:
            weights[place.layer, place.parameter][place.index] = trial[place.numbers]
        return weights
