"""A part of the data: inputs with the original model's outputs, read as decisions, positives and negatives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, Protocol, Self

import numpy as np

from arachne.data.labelled import LabelledData
from arachne.data.targets import Target
from arachne.errors import DataError
from arachne.model.values import Array
from arachne.tasks import SINGLE_LABEL, DecisionRows, Decisions, Task
from arachne.text import Brief

if TYPE_CHECKING:
    from arachne.model.backend import LossGradient, Trace, Weights


class ActivationCache(Protocol):
    """Activations cached from a pass of the original model over some inputs."""

    def take(self, rows: Array) -> Self:
        """Select rows."""

    def trace(self, rows: Array, layers: Sequence[str]) -> Trace | None:
        """Trace some inputs like `ModelBackend.trace`; None if too little is cached."""

    def weight_gradients(
        self, rows: Array, loss_gradient: LossGradient, parameters: Sequence[tuple[str, str]]
    ) -> Weights | None:
        """Compute gradients for some inputs like `ModelBackend.weight_gradients`; None if too little is cached."""


MAX_POSITIVES = 20_000
"""Positives that a search is given where inputs have several decisions; the evidence counts all of them."""

TermKind = Literal["positive", "negative", "never_break", "other"]
"""Decisions that are right and should stay right, decisions to repair, decisions that must not become wrong, and
errors that nobody asked to repair, which count where accuracy is limited and not what breaks."""


@dataclass(frozen=True, eq=False)
class Term(Brief):
    """A term of the fitness: some rows of a part with one weight, to repair or to keep right."""

    name: str
    rows: Array
    weight: float
    kind: TermKind


@dataclass(frozen=True, eq=False)
class Part(Brief):
    """Some rows of the user's data with the original model's outputs.

    Parts are selected by inputs, but labels, predictions, positives, negatives and targets are per decision `(m,)`.
    With one label for each input, decisions are inputs.

    Attributes:
        data: The inputs and labels, `n` of them.
        rows: Their row numbers in the user's data `(n,)`.
        outputs: The original model's raw outputs `(n, ...)`, class scores `(n, classes)` with one label for each input.
            The original model runs once over each input, and all its numbers derive from these.
        targets: The faults to repair.
        cached_activations: Activations of that pass, which need not be computed again; None if there are none.
        task: Reads outputs as decisions.
    """

    data: LabelledData
    rows: Array
    outputs: Array
    targets: tuple[Target, ...]
    cached_activations: ActivationCache | None = None
    task: Task = SINGLE_LABEL

    def __post_init__(self) -> None:
        if len(self.outputs) != len(self.data) or (self.task.SINGLE and self.outputs.ndim != 2):
            raise DataError(
                f"expected scores of shape ({len(self.data)}, classes), one row per input, got {self.outputs.shape}"
            )

    def __len__(self) -> int:
        return len(self.data)

    @property
    def headline(self) -> str:
        """Its data in a line."""
        return self.data.headline

    @cached_property
    def decisions(self) -> Decisions:
        """The decisions of the original model."""
        return self.read(self.outputs)

    def read(self, outputs: Array) -> Decisions:
        """Read a model's raw outputs `(n, ...)` of the part's inputs as decisions."""
        return self.task.read(outputs, self.data.labels)

    @property
    def scores(self) -> Array:
        """The original model's class scores of every decision `(m, classes)`."""
        return self.decisions.scores

    @property
    def labels(self) -> Array:
        """The true class of every decision `(m,)`."""
        return self.decisions.labels

    @property
    def decision_rows(self) -> Array:
        """The row number in the user's data of every decision's input `(m,)`."""
        return self.rows if self.task.SINGLE else self.rows[self.decisions.inputs]

    def by_decision(self, values: Array) -> Array:
        """Return the value of each decision's input `(m,)`, from one value for each input `(n,)`."""
        return values if self.task.SINGLE else values[self.decisions.inputs]

    @cached_property
    def repeated_inputs(self) -> Array | None:
        """The input of each decision, `(m,)`, where one has several; None where no input has more than one."""
        inputs = self.decisions.inputs
        return None if self.task.SINGLE or len(np.unique(inputs)) == len(inputs) else inputs

    def choose_decisions(self, numbers: Array) -> DecisionRows:
        """Return some decisions of the part, by number, to be read from other outputs of its inputs."""
        return DecisionRows(self.task, self.data.labels, self.decisions.inputs, numbers)

    @property
    def n_classes(self) -> int:
        """How many classes a decision is between."""
        return int(self.scores.shape[1])

    @cached_property
    def class_names(self) -> tuple[str, ...]:
        """The name of every class that decisions are between, or its number as text; `classes_of` numbers them."""
        return self.task.name_classes(self.data.class_names, self.task.n_names(self.outputs))

    def classes_of(self, columns: Array) -> Array:
        """Map the score column of each decision `(m,)` to a class number in `class_names`."""
        return columns if self.decisions.first is None else columns + self.decisions.first

    @cached_property
    def label_classes(self) -> Array:
        """The number of every decision's true class among `class_names`, `(m,)`."""
        return self.classes_of(self.labels)

    @cached_property
    def prediction_classes(self) -> Array:
        """The number of the original model's class among `class_names` for every decision, `(m,)`."""
        return self.classes_of(self.predictions)

    @cached_property
    def predictions(self) -> Array:
        """The class of the original model for each decision `(m,)`; the first of several equal scores wins."""
        return self.task.decide(self.scores)

    @cached_property
    def right(self) -> Array:
        """Which decisions of the original model are right, bool `(m,)`."""
        return self.task.correct(self.scores, self.labels)

    @cached_property
    def positives(self) -> Array:
        """Numbers of the decisions that are right."""
        return np.flatnonzero(self.right)

    @cached_property
    def negatives(self) -> Array:
        """Numbers of the decisions that show any target."""
        shown = np.zeros(len(self.decisions), dtype=bool)
        for target in self.targets:
            shown |= self.shows(target)
        return np.flatnonzero(shown)

    def take(self, positions: Array) -> Part:
        """Select inputs of the part by position."""
        cached = None if self.cached_activations is None else self.cached_activations.take(positions)
        rows, outputs = self.rows[positions], self.outputs[positions]
        return Part(self.data.take(positions), rows, outputs, self.targets, cached, self.task)

    def sample_decisions(self, numbers: Array, most: int) -> Array:
        """Return some of these decisions, ascending and the same in every run; with one label for each input, all."""
        if self.task.SINGLE or len(numbers) <= most:
            return numbers
        return np.sort(np.random.default_rng(0).choice(numbers, most, replace=False))

    @cached_property
    def kept_decisions(self) -> Array | None:
        """Which decisions must stay as the model made them, bool `(m,)`; None if there are none."""
        return None if self.data.kept is None else self.by_decision(self.data.kept)

    @property
    def labelled_part(self) -> Part:
        """The inputs that somebody has labelled."""
        return self if self.data.kept is None else self.take(np.flatnonzero(~self.data.kept))

    def shows(self, target: Target, predictions: Array | None = None) -> Array:
        """Return which decisions show a target, bool `(m,)`; kept decisions never do.

        Args:
            target: The target.
            predictions: Other classes than the original model's, by their numbers among `class_names`.
        """
        predictions = self.prediction_classes if predictions is None else predictions
        shown = target.shows(self.label_classes, predictions, self.decision_rows)
        return shown if self.kept_decisions is None else shown & ~self.kept_decisions

    def terms(self, alpha: float, *, others: bool = False) -> tuple[Term, ...]:
        """Return the terms of the fitness: the positives, then every target's negatives with `alpha` times the weight.

        A row that shows two targets counts for the first. Of very many positives, as pixels are, a sample is taken.
        With `others`, the errors that show no target come last, with the weight of a positive.
        """
        terms = [Term("positives", self.sample_decisions(self.positives, MAX_POSITIVES), 1.0, "positive")]
        taken = np.zeros(len(self.decisions), dtype=bool)
        for target in self.targets:
            shown = self.shows(target) & ~taken
            taken |= shown
            terms.append(Term(target.text, np.flatnonzero(shown), alpha * target.weight, "negative"))
        if others:
            terms.append(Term("other errors", np.flatnonzero(~self.right & ~taken), 1.0, "other"))
        return tuple(terms)
