"""Scorer: computes the scores of a model whose weights have other values."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from arachne.model.backend import LossGradient
from arachne.model.values import Array
from arachne.tasks.rows import DecisionRows, OutputGradient


def ignore_overflow() -> np.errstate:
    """Let a candidate overflow without a warning: it simply loses.

    The flags are no evidence of an overflow either: OpenBLAS raises them now and then where all numbers are finite.
    """
    return np.errstate(over="ignore", invalid="ignore")


class Scorer(ABC):
    """Scores of some decisions, and gradients of losses over them, at other values of the suspects.

    A scorer is the one way from a change of weights to its effect on inputs. `rows` are numbers of the decisions it was
    made for; with one label for each input these are the numbers of the inputs.
    """

    @abstractmethod
    def scores(self, values: Array, rows: Array) -> Array:
        """Return class scores `(rows, classes)` when the suspects have these values `(k,)`."""

    @abstractmethod
    def gradients(self, values: Array, loss_gradient: LossGradient, rows: Array) -> Array:
        """Return the gradient of a loss over these rows with respect to the suspects, float64 `(k,)`."""


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
