"""Labelled inputs with what the model makes of them: all that finders and rules look at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from arachne.backend import ModelBackend
from arachne.data.labelled import LabelledData
from arachne.data.mapped import gather
from arachne.errors import UsageError
from arachne.lazy import is_lazy
from arachne.shards import shards
from arachne.values import Array, read, take

HIDDEN_BATCH = 1024
"""Inputs whose hidden activations are computed together, so that wide layers need little memory."""


class Kept:
    """Numbers per input that are computed once, when they are first asked for."""

    def __init__(self, n: int) -> None:
        self._n = n
        self._values: dict[object, Array] = {}
        self._known: dict[object, Array] = {}

    def get(self, name: object, rows: Array, compute: Callable[[Array], Array]) -> Array:
        """The numbers of some rows, `(len(rows), ...)`; `compute` gives those of rows not asked for before."""
        known = self._known.setdefault(name, np.zeros(self._n, dtype=bool))
        missing = rows[~known[rows]]
        if len(missing):
            found = compute(missing)
            if name not in self._values:
                self._values[name] = np.zeros((self._n, *found.shape[1:]), dtype=found.dtype)
            self._values[name][missing] = found
            known[missing] = True
        if name not in self._values:
            return np.zeros(0)
        return self._values[name][rows]


@dataclass(frozen=True, eq=False)
class Cases:
    """Some rows of labelled data, and what the model predicts for them.

    Attributes:
        whole: All of the data.
        predicted: What the model makes of it `(all,)`.
        rows: Which rows these cases are `(n,)`.
        backend: The model; None where only inputs are asked for.
        kept: What was computed from single inputs so far, shared by all cases of the same data.
    """

    whole: LabelledData
    predicted: Array
    rows: Array
    backend: ModelBackend | None = None
    kept: Kept = field(default_factory=lambda: Kept(0), repr=False)

    @classmethod
    def of(cls, data: LabelledData, predictions: Array, backend: ModelBackend | None = None) -> Cases:
        """All of the data as cases."""
        return cls(data, np.asarray(predictions), np.arange(len(data)), backend, Kept(len(data)))

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, positions: Array) -> Cases:
        """Some of these cases, by a mask or by positions."""
        return Cases(self.whole, self.predicted, self.rows[positions], self.backend, self.kept)

    def held(self) -> Cases:
        """The same cases with their inputs in memory, as all there is."""
        own = self.whole.take(self.rows)
        data = replace(own, inputs=read(own.inputs))
        return Cases.of(data, self.predicted[self.rows], self.backend)

    def pieces(self) -> Iterator[Cases]:
        """The cases as they are; those of lazy data piece by piece, each in memory."""
        if not is_lazy(self.whole.inputs):
            yield self
            return
        for part in shards(len(self)):
            yield Cases(self.whole, self.predicted, self.rows[part], self.backend).held()

    @cached_property
    def labels(self) -> Array:
        """True classes `(n,)`."""
        return self.whole.labels[self.rows]

    @cached_property
    def predictions(self) -> Array:
        """Predicted classes `(n,)`."""
        return self.predicted[self.rows]

    @cached_property
    def wrong(self) -> Array:
        """Which are misclassified, bool `(n,)`."""
        wrong: Array = self.labels != self.predictions
        return wrong

    @property
    def arrays(self) -> Mapping[str, Array]:
        """The input arrays of all the data by name; one without a name is called ''."""
        inputs = self.whole.inputs
        return inputs if isinstance(inputs, Mapping) else {"": inputs}

    def inputs(self, name: str = "", index: Array | None = None) -> Array:
        """One input array of these cases as a table `(n, values)`, or the chosen values of it."""
        array = self.arrays[name]
        if index is None:
            return np.asarray(gather(array, self.rows)).reshape(len(self), -1)
        if len(self) == len(array):
            return np.asarray(array).reshape(len(array), -1)[:, index]
        return np.asarray(array).reshape(len(array), -1)[self.rows[:, None], index]

    def column(self, name: str) -> Array:
        """A metadata column as text `(n,)`."""
        column = self.whole.columns[name]
        return np.asarray(column[self.rows]).astype(str)

    def hidden(self, layer: str) -> Array:
        """What enters a layer, one vector per case `(n, width)`; axes between are averaged.

        Raises:
            UsageError: There is no model to ask.
        """
        return self.kept.get(("hidden", layer), self.rows, lambda rows: self._hidden(layer, rows))

    def _hidden(self, layer: str, rows: Array) -> Array:
        if self.backend is None:
            raise UsageError("a rule about hidden activations needs the model; give it with the inputs")
        found = []
        for start in range(0, len(rows), HIDDEN_BATCH):
            part = take(self.whole.inputs, rows[start : start + HIDDEN_BATCH])
            use = self.backend.activations(part, layer)[-1]
            entering = np.asarray(next(iter(use.entering.values())), dtype=np.float32)
            # The features are on the last axis of what enters a dense layer.
            found.append(entering.reshape(len(entering), -1, entering.shape[-1]).mean(axis=1))
        return np.concatenate(found)
