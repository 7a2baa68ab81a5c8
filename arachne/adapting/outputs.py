"""A model's outputs: whether they are probabilities, the names of its classes, and joining the results of batches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from arachne.errors import UsageError, did_you_mean
from arachne.model.sharding import join_rows
from arachne.model.values import Activation, Array

JOINED_BY = ","
"""Between the names of two outputs that are joined: boxes and scores of a detector."""

BOX_VALUES = 4
"""The numbers of a box."""

SMALLEST_PROBABILITY = 1e-12
"""Probabilities are raised to this before their logarithm is taken."""


def are_probabilities(output: Array) -> bool:
    """Tell whether every row of `(n, classes)` outputs is a distribution over at least two classes."""
    if output.ndim != 2 or output.shape[1] < 2 or not len(output):
        return False
    inside = bool(np.all(output >= 0) and np.all(output <= 1))
    return inside and bool(np.allclose(output.sum(axis=1), 1.0, rtol=0, atol=1e-3))


def class_names(model: Any) -> tuple[str, ...] | None:
    """Return the class names in a model object's `class_names` or `classes`, or in Hugging Face's `config.id2label`.

    None where it has none; `LABEL_0`, `LABEL_1`, … are what Hugging Face fills in, and no names.
    """
    labels = getattr(getattr(model, "config", None), "id2label", None)
    listed = [labels.get(number) for number in range(len(labels))] if isinstance(labels, Mapping) else None
    for names in (getattr(model, "class_names", None), getattr(model, "classes", None), listed):
        if isinstance(names, (list, tuple)) and names and all(isinstance(name, str) for name in names):
            return None if names == [f"LABEL_{number}" for number in range(len(names))] else tuple(names)
    return None


def unknown_output(name: str, known: Iterable[str]) -> UsageError:
    """Make the error about a name that is no output of a model, which may have been meant as a place to write to."""
    return UsageError(f"the model has no output '{name}'{did_you_mean(name, known)}", argument="output")


def join_gradients(parts: Sequence[Mapping[str, Sequence[Array]]]) -> dict[str, tuple[Array, ...]]:
    """Join the gradients at each layer's uses over the batches."""
    return {layer: tuple(map(join_rows, zip(*(part[layer] for part in parts), strict=True))) for layer in parts[0]}


def join_activations(parts: Iterable[Mapping[str, Sequence[Activation]]], n: int) -> dict[str, tuple[Activation, ...]]:
    """Join the activations of each layer's uses over the batches of `n` inputs.

    Each batch is copied to its place as it comes, so that all of them are never held beside what they are joined to.
    """
    found: dict[str, list[_JoinedUse]] | None = None
    for part in parts:
        if found is None:
            found = {layer: [_JoinedUse(use, n) for use in uses] for layer, uses in part.items()}
        for layer, joined in found.items():
            for one, use in zip(joined, part[layer], strict=True):
                one.add(use)
    return {layer: tuple(one.activation for one in uses) for layer, uses in (found or {}).items()}


class _JoinedUse:
    """One use of a layer over all batches."""

    def __init__(self, first: Activation, n: int) -> None:
        self._entering = {name: _JoinedRows(values, n) for name, values in first.entering.items()}
        self._leaving, self._transposed = _JoinedRows(first.leaving, n), first.transposed

    def add(self, use: Activation) -> None:
        for name, rows in self._entering.items():
            rows.add(use.entering[name])
        self._leaving.add(use.leaving)

    @property
    def activation(self) -> Activation:
        entering = {name: rows.array for name, rows in self._entering.items()}
        return Activation(entering, self._leaving.array, self._transposed)


class _JoinedRows:
    """The rows of an array, batch by batch; batches of another shape, such as longer sequences, wait for the last."""

    def __init__(self, first: Array, n: int) -> None:
        self._whole = None if len(first) == n else np.empty((n, *first.shape[1:]), first.dtype)
        self._done, self._waiting = 0, list[Array]()

    def add(self, rows: Array) -> None:
        whole, end = self._whole, self._done + len(rows)
        fits = (
            whole is not None and (rows.shape[1:], rows.dtype) == (whole.shape[1:], whole.dtype) and end <= len(whole)
        )
        if whole is None or not fits or self._waiting:
            self._waiting.append(rows)
        else:
            whole[self._done : end], self._done = rows, end

    @property
    def array(self) -> Array:
        return join_rows([*([] if self._whole is None else [self._whole[: self._done]]), *self._waiting])
