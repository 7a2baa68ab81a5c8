"""Regression: numbers that are near enough, or too low, or too high."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from arachne.decisions.decisions import Array, Decisions
from arachne.errors import DataError, ModelError, UsageError
from arachne.plugins.options import option
from arachne.tasks.base import Pair, Task, as_numbers
from arachne.tasks.words import Words

UNDER, WITHIN, OVER = CLASSES = ("under", "within", "over")


@dataclass(frozen=True, kw_only=True)
class Regression(Task):
    """Numbers within a tolerance: outputs `(n,)` or `(n, k)`, labels of that many numbers; NaN does not count.

    A prediction is under, within or over: its scores are -r - t, 0 and r - t for the residual r and the tolerance t.
    `over` and `under` are targets.
    """

    name = "regression"
    NOUN = "number"
    CROWDED = True
    WORDS = Words(never_true=(UNDER, OVER))

    tolerance: float | None = option(None, "How far a prediction may be from its label, in the label's unit.", least=0)

    def resolve(self, outputs: Array, names: Sequence[str] | None) -> Regression:
        if self.tolerance is None:
            raise UsageError("say how far a prediction may be from its label", argument="tolerance")
        return self

    def read(self, outputs: Array, labels: Array) -> Decisions:
        known = self._mark_known(labels, outputs)
        residual = (self._columns(outputs) - labels.reshape(known.shape).astype(outputs.dtype))[known]
        near = np.asarray(self.tolerance, outputs.dtype)
        inputs, which = np.nonzero(known)
        scores = np.stack([-residual - near, np.zeros_like(residual), residual - near], axis=1)
        return Decisions(scores, np.ones(len(inputs), np.int64), inputs, 3 * which)

    def pull_back(self, gradient: Array, outputs: Array, labels: Array) -> Array:
        known = self._mark_known(labels, outputs)
        found = np.zeros(known.shape, outputs.dtype)
        found[known] = gradient[:, 2] - gradient[:, 0]
        return found.reshape(outputs.shape)

    def check(self, outputs: Array, labels: Array) -> None:
        n = self.n_names(outputs)
        if labels.shape not in ((len(outputs), n), (len(outputs),) if n == 1 else ()):
            raise DataError(f"expected {n} numbers for each of {len(outputs)} inputs, got labels of {labels.shape}")
        if labels.dtype.kind == "f" and np.isinf(labels).any():
            raise DataError("a label is infinite, expected a number")

    def n_classes(self, outputs: Array) -> int:
        self.n_names(outputs)
        return len(CLASSES)

    def n_names(self, outputs: Array) -> int:
        if outputs.ndim > 2:
            raise ModelError(f"expected outputs of shape (inputs,) or (inputs, numbers), got {outputs.shape}")
        return 1 if outputs.ndim == 1 else int(outputs.shape[1])

    def name_classes(self, names: Sequence[str] | None, n_names: int) -> tuple[str, ...]:
        if n_names == 1:
            return CLASSES
        each = range(n_names) if names is None else names
        return tuple(f"{name} {word}" for name in each for word in CLASSES)

    def convert_labels(self, values: Any, names: Sequence[str] | None, inputs: Any = None) -> Array:
        return as_numbers(values, None).astype(np.float64)

    def label_as_decided(self, outputs: Array) -> Array:
        return outputs.astype(np.float64)

    def find_target(self, text: str, classes: Sequence[str]) -> Pair | None:
        if text in classes and not text.endswith(WITHIN):
            return None, classes.index(text)
        return None

    def target_text(self, label: int, prediction: int, classes: Sequence[str]) -> str | None:
        return classes[prediction]

    def _columns(self, outputs: Array) -> Array:
        return outputs.reshape(len(outputs), self.n_names(outputs))

    def _mark_known(self, labels: Array, outputs: Array) -> Array:
        return ~np.isnan(np.asarray(labels, np.float64)).reshape(self._columns(outputs).shape)
