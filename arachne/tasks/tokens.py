"""Tokens and Segmentation: one class for each token of a text, or each pixel of a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from arachne.decisions.decisions import Array, Decisions
from arachne.errors import DataError, ModelError
from arachne.plugins.options import option
from arachne.tasks.base import Task, as_numbers

MASK = "attention_mask"
"""The input that is 0 where there is no token."""

IGNORED = -100
"""The label of a token that does not count, as in Hugging Face's models; every negative label is ignored."""


@dataclass(frozen=True, kw_only=True)
class Tokens(Task):
    """A class for each token: outputs `(n, tokens, classes)`, labels `(n, tokens)`; those below 0 do not count.

    Tokens whose attention mask is 0 do not count either.
    """

    name = "tokens"
    NOUN = "token"

    def read(self, outputs: Array, labels: Array) -> Decisions:
        known = labels >= 0
        return Decisions(outputs[known], labels[known], np.nonzero(known)[0])

    def pull_back(self, gradient: Array, outputs: Array, labels: Array) -> Array:
        found = np.zeros_like(outputs)
        found[labels >= 0] = gradient
        return found

    def check(self, outputs: Array, labels: Array) -> None:
        check_label_shape(self, labels, outputs.shape[:2], self.n_classes(outputs))

    def n_classes(self, outputs: Array) -> int:
        if outputs.ndim != 3:
            raise ModelError(f"expected outputs of shape (inputs, tokens, classes) from the model, got {outputs.shape}")
        return int(outputs.shape[2])

    def label_as_decided(self, outputs: Array) -> Array:
        return self.decide(outputs.reshape(-1, outputs.shape[-1])).reshape(outputs.shape[:-1])

    def convert_labels(self, values: Any, names: Sequence[str] | None, inputs: Any = None) -> Array:
        found = whole_labels(as_numbers(values, names))
        mask = inputs.get(MASK) if isinstance(inputs, Mapping) else None
        return found if mask is None or mask.shape != found.shape else np.where(np.asarray(mask) == 0, IGNORED, found)


@dataclass(frozen=True, kw_only=True)
class Segmentation(Task):
    """A class for each pixel: outputs `(n, classes, height, width)` or with classes last, masks `(n, height, width)`.

    One channel is a logit: class 1 where it is above 0. Pixels with the ignore index, or a label below 0, do not count.
    """

    name = "segmentation"
    NOUN = "pixel"

    ignore_index: int = option(255, "The label of pixels that do not count; those below 0 never do.", metavar="N")
    classes_last: bool = field(default=False, repr=False)
    """Whether classes are the last axis of outputs, as in Keras; told by the outputs once the model is known."""

    def resolve(self, outputs: Array, names: Sequence[str] | None) -> Self:
        first, *_, last = self._check_axes(outputs).shape[1:]
        n = None if names is None else len(names)
        known = [n == axis or (n == 2 and axis == 1) for axis in (first, last)]
        return replace(self, classes_last=known[1] if known[0] != known[1] else last < first)

    def read(self, outputs: Array, labels: Array) -> Decisions:
        known = self._mark_known(labels)
        scores = self._by_pixel(outputs)[known]
        if scores.shape[1] == 1:
            scores = np.concatenate([np.zeros_like(scores), scores], axis=1)
        return Decisions(scores, labels[known], np.nonzero(known)[0])

    def pull_back(self, gradient: Array, outputs: Array, labels: Array) -> Array:
        found = np.zeros_like(outputs)
        by_pixel = self._by_pixel(found)
        by_pixel[self._mark_known(labels)] = gradient[:, -by_pixel.shape[-1] :]
        return found

    def check(self, outputs: Array, labels: Array) -> None:
        classes = self.n_classes(outputs)
        known = np.where(self._mark_known(labels), labels, IGNORED)
        check_label_shape(self, known, self._by_pixel(outputs).shape[:3], classes)

    def n_classes(self, outputs: Array) -> int:
        return max(2, int(self._by_pixel(self._check_axes(outputs)).shape[-1]))

    def label_as_decided(self, outputs: Array) -> Array:
        every = np.zeros(self._by_pixel(outputs).shape[:3], np.int64)
        return self.decide(self.read(outputs, every).scores).reshape(every.shape)

    def convert_labels(self, values: Any, names: Sequence[str] | None, inputs: Any = None) -> Array:
        return whole_labels(as_numbers(values, names))

    def frame(self, outputs: Array, labels: Array, decisions: Array, inputs: Any) -> Array | None:
        rows, columns = np.stack(np.nonzero(self._mark_known(labels))[1:])[:, decisions]
        height, width = labels.shape[1:]
        sides = (columns - 1) / width, (rows - 1) / height, (columns + 2) / width, (rows + 2) / height
        return np.asarray(np.clip(np.stack(sides, axis=1), 0, 1))

    def _by_pixel(self, outputs: Array) -> Array:
        """View outputs as `(n, height, width, classes)`."""
        return outputs if self.classes_last else np.moveaxis(outputs, 1, -1)

    def _check_axes(self, outputs: Array) -> Array:
        if outputs.ndim != 4:
            raise ModelError(
                f"expected outputs of shape (inputs, classes, height, width) from the model, got {outputs.shape}"
            )
        return outputs

    def _mark_known(self, labels: Array) -> Array:
        return np.asarray((labels >= 0) & (labels != self.ignore_index))


def whole_labels(labels: Array) -> Array:
    """Return labels as whole numbers, int64, NaN as ignored.

    Raises:
        DataError: One is no whole number.
    """
    if labels.dtype.kind == "f":
        labels = np.where(np.isnan(labels), IGNORED, labels)
        if (labels != np.round(labels)).any():
            raise DataError("a label is no whole number, expected the number of a class")
    return labels.astype(np.int64)


def check_label_shape(task: Task, labels: Array, shape: Sequence[int], classes: int) -> None:
    """Refuse labels that are not one class for each token or pixel of the outputs.

    Raises:
        DataError: Another shape, a label that is no class, or none that counts.
    """
    if labels.shape != tuple(shape):
        raise DataError(f"expected a label for each {task.NOUN}, shape {tuple(shape)}, got labels of {labels.shape}")
    outside = np.argwhere(labels >= classes)
    if len(outside):
        row = outside[0][0]
        raise DataError(
            f"row {row} has the label {labels[tuple(outside[0])]}, but the model has the classes 0 to {classes - 1}"
        )
    if not (labels >= 0).any():
        raise DataError(f"no {task.NOUN} of any input has a label that counts")
