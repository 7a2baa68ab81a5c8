"""Binary: one raw number for each input, above 0 for the second of two classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from arachne.decisions.decisions import Array, Decisions
from arachne.errors import DataError, ModelError
from arachne.tasks.base import Task


@dataclass(frozen=True, kw_only=True)
class Binary(Task):
    """One logit for each input, `(n, 1)` or `(n,)`: class 1 where it is above 0. Two label values make it the default.

    The class scores are (0, z). A model that ends in one sigmoid has these scores already, and is of a single label.
    """

    name = "binary"
    ONE_LABEL = True

    def read(self, outputs: Array, labels: Array) -> Decisions:
        logits = outputs.reshape(len(outputs), 1)
        return Decisions(np.concatenate([np.zeros_like(logits), logits], axis=1), labels, np.arange(len(labels)))

    def pull_back(self, gradient: Array, outputs: Array, labels: Array) -> Array:
        return np.asarray(gradient[:, 1].reshape(outputs.shape).astype(outputs.dtype))

    def check(self, outputs: Array, labels: Array) -> None:
        self.n_classes(outputs)
        if labels.shape != (len(outputs),) or not np.isin(labels, (0, 1)).all():
            raise DataError(f"expected one label for each input, 0 or 1, got labels {describe_labels(labels)}")

    def n_classes(self, outputs: Array) -> int:
        if not is_one_number(outputs):
            raise ModelError(f"expected one number for each input from the model, got outputs of shape {outputs.shape}")
        return 2

    def label_as_decided(self, outputs: Array) -> Array:
        return (outputs.reshape(len(outputs)) > 0).astype(np.int64)

    def absent_classes(self, n_classes: int) -> Mapping[int, int]:
        return {0: 1, 1: 0}

    def target_text(self, label: int, prediction: int, classes: Sequence[str]) -> str | None:
        return None


def is_one_number(outputs: Array) -> bool:
    """Tell whether outputs are one number for each input, `(n,)` or `(n, 1)`."""
    return outputs.ndim == 1 or (outputs.ndim == 2 and outputs.shape[1] == 1)


def describe_labels(labels: Array) -> str:
    """Describe labels in a message: `of shape (20, 3)`, or `from 0 to 5`."""
    if labels.ndim != 1:
        return f"of shape {labels.shape}"
    return f"from {labels.min():g} to {labels.max():g}" if len(labels) else "of no input"
