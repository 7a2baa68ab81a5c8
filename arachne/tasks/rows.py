"""DecisionRows: some decisions of some inputs; reads their scores from outputs and carries gradients back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from arachne.decisions.decisions import Array, Decisions
from arachne.decisions.losses import LossGradient
from arachne.tasks.base import Task


@dataclass(frozen=True, eq=False)
class DecisionRows:
    """Some of the decisions that some inputs have, in any order.

    Attributes:
        task: How outputs are read.
        labels: The labels of all inputs, `(n, ...)`.
        inputs: The input of every decision that they have, int64 `(m,)`, ascending.
        numbers: The decisions that are meant, int64 `(k,)`: positions in `inputs`.
    """

    task: Task
    labels: Array
    inputs: Array
    numbers: Array

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def owners(self) -> Array:
        """The input of each decision that is meant, `(k,)`."""
        return np.asarray(self.inputs[self.numbers])

    def inputs_of(self, rows: Array) -> Array:
        """Return the inputs that some of the decisions belong to, each once, ascending."""
        return np.unique(self.owners[rows])

    def take(self, rows: Array) -> Self:
        """Return some of the decisions, of the same inputs."""
        return replace(self, numbers=self.numbers[rows])

    def compact(self) -> tuple[Array, Self]:
        """Return the inputs that some decisions belong to, `(i,)`, and the decisions renumbered for these inputs."""
        own = np.unique(self.owners)
        among = np.flatnonzero(np.isin(self.inputs, own))
        inputs, numbers = np.searchsorted(own, self.inputs[among]), np.searchsorted(among, self.numbers)
        return own, replace(self, labels=self.labels[own], inputs=inputs, numbers=numbers)

    def extended_by(self, other: DecisionRows) -> Self:
        """Return these decisions and others, whose inputs come behind these inputs."""
        return replace(
            self,
            labels=np.concatenate([self.labels, other.labels]),
            inputs=np.concatenate([self.inputs, other.inputs + len(self.labels)]),
            numbers=np.concatenate([self.numbers, other.numbers + len(self.inputs)]),
        )

    def read(self, outputs: Array, inputs: Array, rows: Array) -> Array:
        """Return class scores `(rows, classes)` of some of the decisions, from the outputs of their inputs."""
        found = self.task.read(outputs, self.labels[inputs])
        return np.asarray(found.scores[self.positions(found, inputs, rows)])

    def positions(self, found: Decisions, inputs: Array, rows: Array) -> Array:
        """Return the positions `(rows,)` of some decisions among all that were read from the outputs of `inputs`."""
        position = np.zeros(len(self.labels), np.int64)
        position[inputs] = np.arange(len(inputs))
        starts = np.searchsorted(found.inputs, np.arange(len(inputs)))
        numbers = self.numbers[rows]
        owners = self.inputs[numbers]
        return np.asarray(starts[position[owners]] + numbers - np.searchsorted(self.inputs, owners))


class OutputGradient:
    """A loss over decisions as a backend sees it: a `LossGradient` over the raw outputs of their inputs.

    Args:
        decisions: The decisions.
        loss_gradient: The loss over some of them.
        rows: Which of them, `(r,)`.
        inputs: The inputs a backend is asked about, `(i,)`.
    """

    def __init__(self, decisions: DecisionRows, loss_gradient: LossGradient, rows: Array, inputs: Array) -> None:
        self._decisions, self._loss_gradient = decisions, loss_gradient
        self._rows, self._inputs = rows, inputs
        self._owners = decisions.owners[rows]

    def __call__(self, outputs: Array, batch: slice) -> Array:
        """Return d loss / d outputs of the inputs of one batch."""
        decisions, inputs = self._decisions, self._inputs[batch]
        task, labels = decisions.task, decisions.labels[inputs]
        found = task.read(outputs, labels)
        asked = np.flatnonzero(np.isin(self._owners, inputs))
        positions = decisions.positions(found, inputs, self._rows[asked])
        gradient = np.zeros_like(found.scores)
        numbers: object = asked  # they index an array as a slice does
        np.add.at(gradient, positions, self._loss_gradient(found.scores[positions], numbers))  # type: ignore[arg-type]
        return task.pull_back(gradient, outputs, labels)
