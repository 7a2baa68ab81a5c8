"""The reference evaluator: a full forward pass of every input for every candidate. Slow, and right by inspection."""

from __future__ import annotations

import numpy as np

from arachne.backend import restored
from arachne.evaluate.base import Evaluator, by_term, input_deficits
from arachne.values import Array, take


class PlainEvaluator(Evaluator):
    """Puts a candidate into the model, runs it on everything, and puts the original weights back."""

    def evaluate(self, trials: Array, limits: Array | None = None) -> Array:
        stake = self.stake
        found = np.empty((len(trials), stake.n_terms), np.int64)
        for number, trial in enumerate(trials):
            deficits = input_deficits(self.scores(trial), stake.labels, stake.weights)
            found[number] = by_term(deficits, stake.terms, stake.n_terms)
        return found

    def scores(self, trial: Array, rows: Array | None = None) -> Array:
        """As it says there; or of some inputs, `(rows, classes)`."""
        inputs = self.stake.padded if rows is None else take(self.stake.padded, rows)
        with restored(self.backend, self.suspects.parameters):
            for (layer, parameter), values in self.weights_with(trial).items():
                self.backend.set_weights(layer, parameter, values)
            with np.errstate(over="ignore", invalid="ignore"):  # a candidate that overflows simply loses
                return self.backend.forward(inputs)[: len(self.stake.labels)]
