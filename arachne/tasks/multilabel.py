"""Multilabel: every label is there or not, whatever the others are; one decision for each label that is known."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from arachne.decisions.decisions import Array, Decisions
from arachne.errors import DataError, ModelError, UsageError, did_you_mean
from arachne.plugins.options import option
from arachne.tasks.base import Task, as_numbers

UNKNOWN = -1
"""The label of what nobody has labelled."""

DEFAULT_THRESHOLD = 0.5


@dataclass(frozen=True, kw_only=True)
class Multilabel(Task):
    """Several labels for each input, each there or not: outputs `(n, labels)`, labels 0, 1 and unknown (NaN or -1).

    A label is found where its probability is above its threshold. `false:LABEL` and `missed:LABEL` are targets. What is
    broken is counted over all labels' right decisions, and told for each label.
    """

    name = "multilabel"
    NOUN = "label"

    thresholds: tuple[str, ...] = option(
        (), "Probability from which a label is found: 0.5 for all, or threat=0.3,insult=0.7 for some.", metavar="VALUE"
    )
    label_names: tuple[str, ...] = field(default=(), repr=False)
    """The names of the labels in order, once the model is known."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for word in self.thresholds:
            parse_threshold(word)

    def resolve(self, outputs: Array, names: Sequence[str] | None) -> Self:
        n = self.n_names(outputs)
        found = replace(self, label_names=tuple(map(str, range(n))) if names is None else tuple(names))
        for name, _ in map(parse_threshold, self.thresholds):
            if name and name not in found.label_names:
                raise UsageError(f"a threshold is for '{name}', which is no label" + did_you_mean(name, names or ()))
        return found

    @cached_property
    def limits(self) -> Array:
        """The logit of each label's threshold, float32 `(labels,)`; one number where all are the same."""
        given = dict(map(parse_threshold, self.thresholds))
        usual = given.get("", DEFAULT_THRESHOLD)
        each = [given.get(name, usual) for name in self.label_names] or [usual]
        return np.array([math.log(one / (1 - one)) for one in each], np.float32)

    def read(self, outputs: Array, labels: Array) -> Decisions:
        known = labels >= 0
        found = (outputs - self.limits)[known]
        inputs, which = np.nonzero(known)
        scores = np.stack([np.zeros_like(found), found], axis=1)
        return Decisions(scores, labels[known].astype(np.int64), inputs, 2 * which)

    def pull_back(self, gradient: Array, outputs: Array, labels: Array) -> Array:
        found = np.zeros_like(outputs)
        found[labels >= 0] = gradient[:, 1]
        return found

    def check(self, outputs: Array, labels: Array) -> None:
        n = self.n_names(outputs)
        if labels.shape != outputs.shape:
            raise DataError(
                f"expected labels of shape {outputs.shape}, one for each of the model's {n} labels, got {labels.shape}"
            )
        wrong = np.argwhere(~np.isin(labels, (0, 1, UNKNOWN)))
        if len(wrong):
            row, column = wrong[0]
            raise DataError(
                f"row {row} has {labels[row, column]:g} for label {column}, expected 0, 1 or, where it is unknown, -1"
            )
        if not (labels >= 0).any():
            raise DataError("no label of any input is known, so nothing can be right or wrong")

    def n_classes(self, outputs: Array) -> int:
        self.n_names(outputs)
        return 2

    def n_names(self, outputs: Array) -> int:
        if outputs.ndim != 2:
            raise ModelError(f"expected outputs of shape (inputs, labels) from the model, got {outputs.shape}")
        return int(outputs.shape[1])

    def name_classes(self, names: Sequence[str] | None, n_names: int) -> tuple[str, ...]:
        each = tuple(map(str, range(n_names))) if names is None else names
        return tuple(word for name in each for word in (f"no {name}", name))

    def label_as_decided(self, outputs: Array) -> Array:
        return (outputs > self.limits).astype(np.int64)

    def absent_classes(self, n_classes: int) -> Mapping[int, int]:
        return {number: number - 1 for number in range(1, n_classes, 2)}

    def convert_labels(self, values: Any, names: Sequence[str] | None, inputs: Any = None) -> Array:
        found = as_numbers(values, None)
        found = found[:, None] if found.ndim == 1 else found
        unknown = np.isnan(found) if found.dtype.kind == "f" else np.zeros(found.shape, bool)
        return np.where(unknown, UNKNOWN, found)


def parse_threshold(word: str) -> tuple[str, float]:
    """Return the label a threshold is for, empty for all, and the threshold: from `0.5` or `threat=0.3`.

    Raises:
        UsageError: It is no number above 0 and below 1.
    """
    name, _, text = word.rpartition("=")
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < 1:
        raise UsageError(f"a threshold is a probability above 0 and below 1, got '{text}'", argument="threshold")
    return name.strip(), value
