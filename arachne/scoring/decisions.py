"""DecisionScorer: scores of decisions, where an input may have several of them."""

from __future__ import annotations

from arachne.model.backend import LossGradient
from arachne.model.values import Array
from arachne.scoring.base import Scorer
from arachne.tasks.rows import DecisionRows, OutputGradient


class DecisionScorer(Scorer):
    """Reads decisions from the raw outputs of another scorer.

    Args:
        outputs: Computes the raw outputs of inputs.
        decisions: The decisions that `rows` index.
    """

    def __init__(self, outputs: Scorer, decisions: DecisionRows) -> None:
        self._outputs, self._decisions = outputs, decisions

    def scores(self, values: Array, rows: Array) -> Array:
        inputs = self._decisions.inputs_of(rows)
        return self._decisions.read(self._outputs.scores(values, inputs), inputs, rows)

    def gradients(self, values: Array, loss_gradient: LossGradient, rows: Array) -> Array:
        inputs = self._decisions.inputs_of(rows)
        return self._outputs.gradients(values, OutputGradient(self._decisions, loss_gradient, rows, inputs), inputs)
