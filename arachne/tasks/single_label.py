"""SingleLabel: every input has one label, and the outputs are its class scores."""

from __future__ import annotations

import numpy as np

from arachne.errors import DataError, ModelError
from arachne.tasks.base import Task
from arachne.tasks.decisions import Array, Decisions


class SingleLabel(Task):
    """One decision for each input: outputs `(n, classes)` are its class scores, labels `(n,)` its classes."""

    name = "single-label"

    SINGLE = True

    def read(self, outputs: Array, labels: Array) -> Decisions:
        return Decisions(outputs, labels, np.arange(len(labels)))

    def pull_back(self, gradient: Array, outputs: Array, labels: Array) -> Array:
        return gradient

    def check(self, outputs: Array, labels: Array) -> None:
        classes = self.n_classes(outputs)
        if labels.shape != (len(outputs),):
            raise DataError(f"expected one label for each input, ({len(outputs)},), got labels of shape {labels.shape}")
        outside = np.flatnonzero((labels < 0) | (labels >= classes))
        if len(outside):
            row = int(outside[0])
            raise DataError(f"row {row} has the label {labels[row]}, but the model has the classes 0 to {classes - 1}")

    def n_classes(self, outputs: Array) -> int:
        if outputs.ndim != 2:
            raise ModelError(
                f"expected class scores of shape (inputs, classes) from the model, got outputs of shape {outputs.shape}"
            )
        return int(outputs.shape[1])


SINGLE_LABEL = SingleLabel()
"""The task that everything works for unless another is given."""
