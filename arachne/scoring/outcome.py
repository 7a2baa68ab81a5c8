"""Outcome: the effect of one change on the decisions of one part of the data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from arachne.data.part import Part
from arachne.fairness import Grouped, Objective
from arachne.model.values import Array
from arachne.scoring.by_input import find_repeated, rate_of
from arachne.scoring.statistics import Drop, Rate
from arachne.text import Brief


@dataclass(frozen=True, eq=False)
class Baseline(Brief):
    """The outcome of the original model on some decisions; all arrays `(n,)`.

    Attributes:
        rows: The row numbers of their inputs in the user's data.
        labels: Their true classes.
        right: Whether the model gets each of them right: the positives.
        negative: Whether each of them shows the fault.
        columns: Their metadata, by column.
    """

    rows: Array
    labels: Array
    right: Array
    negative: Array
    columns: Mapping[str, Array] = field(default_factory=dict)

    @classmethod
    def of(cls, part: Part) -> Baseline:
        """Return the baseline outcome of a part."""
        negative = np.zeros(len(part.decisions), bool)
        negative[part.negatives] = True
        columns = {name: part.by_decision(column) for name, column in part.data.columns.items()}
        return cls(part.decision_rows, part.label_classes, part.right, negative, columns)

    def __len__(self) -> int:
        return len(self.labels)

    @cached_property
    def owners(self) -> Array | None:
        """The input of each decision, `(n,)`; None where no input has several."""
        return find_repeated(self.rows)

    @cached_property
    def right_inputs(self) -> int:
        """How many inputs have a decision that is right."""
        return int(self.right.sum()) if self.owners is None else len(np.unique(self.rows[self.right]))

    def by(self, column: str) -> Grouped:
        """Return the inputs' groups by a metadata column."""
        if column not in self._groupings:
            self._groupings[column] = Grouped.by(self.columns[column], self.labels, int(self.labels.max(initial=0)) + 1)
        return self._groupings[column]

    @cached_property
    def _groupings(self) -> dict[str, Grouped]:
        return {}


@dataclass(frozen=True, eq=False)
class Outcome(Brief):
    """The outcome of one change on some decisions: `right` marks the right ones, bool `(n,)`."""

    baseline: Baseline
    right: Array

    @property
    def repair(self) -> Rate:
        """Negatives that are right now."""
        return rate_of(self.right, self.baseline.negative, self.baseline.owners)

    @property
    def breakage(self) -> Rate:
        """Positives that are wrong now."""
        return rate_of(~self.right, self.baseline.right, self.baseline.owners)

    @property
    def drop(self) -> Drop:
        """How far the accuracy on all decisions but the negatives falls."""
        before, others = self.baseline.right, ~self.baseline.negative
        broken, fixed = int((before & ~self.right).sum()), int((~before & self.right & others).sum())
        return Drop(broken, fixed, int(others.sum()), self.breakage.design_effect)

    def class_drops(self, n_classes: int) -> Array:
        """Return by how much the accuracy of each class falls, `(classes,)`; 0 for classes without inputs."""
        labels = self.baseline.labels
        total = np.bincount(labels, minlength=n_classes)
        lost = np.bincount(labels[self.baseline.right], minlength=n_classes)
        lost = lost - np.bincount(labels[self.right], minlength=n_classes)
        return np.asarray(lost / np.maximum(total, 1))

    def group_drops(self, column: str) -> dict[str, float]:
        """Return by how much the accuracy of each group of a metadata column falls."""
        grouped = self.baseline.by(column)
        lost = (grouped.right(self.baseline.right) - grouped.right(self.right)).sum(axis=1)
        return dict(zip(grouped.names, (lost / np.maximum(grouped.totals.sum(axis=1), 1)).tolist(), strict=True))

    def cost(self, objective: Objective) -> float:
        """Return the objective's cost; smaller is better."""
        grouped = self.baseline.by(str(objective.group_column))
        return float(objective.cost(grouped.right(self.right), grouped.totals))

    def gain(self, objective: Objective) -> float:
        """Return by how much the objective's cost is lower than with the original model."""
        return Outcome(self.baseline, self.baseline.right).cost(objective) - self.cost(objective)
