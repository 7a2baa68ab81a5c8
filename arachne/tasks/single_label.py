"""SingleLabel: every input has one label, and the outputs are its class scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from arachne.decisions.decisions import Array, Decisions
from arachne.errors import DataError, ModelError
from arachne.tasks.base import Task


@dataclass(frozen=True, kw_only=True)
class SingleLabel(Task):
    """One decision for each input: outputs `(n, classes)` are its class scores, labels `(n,)` its classes."""

    name = "single-label"

    SINGLE = True
    ONE_LABEL = True

    def read(self, outputs: Array, labels: Array) -> Decisions:
        return Decisions(outputs, labels, np.arange(len(labels)))

    def pull_back(self, gradient: Array, outputs: Array, labels: Array) -> Array:
        return gradient

    def check(self, outputs: Array, labels: Array) -> None:
        classes = self.n_classes(outputs)
        if labels.shape != (len(outputs),):
            raise DataError(f"expected one label for each input, ({len(outputs)},), got labels of shape {labels.shape}")
        if labels.dtype.kind == "f":
            row = int(np.flatnonzero(labels != np.round(labels))[0])
            raise DataError(f"expected the number of a class as the label of row {row}, got {labels[row]:g}")
        outside = np.flatnonzero((labels < 0) | (labels >= classes))
        if len(outside):
            row = int(outside[0])
            shifted = (
                f"; the labels go from 1 to {classes}: subtract 1"
                if labels.min() == 1 and labels.max() == classes
                else ""
            )
            raise DataError(
                f"row {row} has the label {labels[row]}, but the model has the classes 0 to {classes - 1}{shifted}"
            )

    def label_as_decided(self, outputs: Array) -> Array:
        return self.decide(outputs)

    def absent_classes(self, n_classes: int) -> Mapping[int, int]:
        return {0: 1, 1: 0} if n_classes == 2 else {}

    def target_text(self, label: int, prediction: int, classes: Sequence[str]) -> str | None:
        return None

    def n_classes(self, outputs: Array) -> int:
        if outputs.ndim != 2:
            raise ModelError(
                f"expected class scores of shape (inputs, classes) from the model, got outputs of shape {outputs.shape}"
            )
        return int(outputs.shape[1])


SINGLE_LABEL = SingleLabel()
"""The task that everything works for unless another is given."""
