"""Labelled inputs with the model's predictions: everything that finders and rules look at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from arachne.data.labelled import LabelledData
from arachne.data.lazy.memmap import gather
from arachne.errors import UsageError
from arachne.model.backend import ModelBackend
from arachne.model.lazy import is_plain
from arachne.model.sharding import shards
from arachne.model.values import Array, by_name, read, take

HIDDEN_BATCH = 1024
"""Inputs whose hidden activations are computed together, so that wide layers need little memory."""


class RowCache:
    """A cache of one array per name, with one entry per input, filled for the rows that are asked for."""

    def __init__(self, n: int) -> None:
        self._n = n
        self._values: dict[object, Array] = {}
        self._known: dict[object, Array] = {}

    def get(self, name: object, rows: Array, compute: Callable[[Array], Array]) -> Array:
        """Return the entries of some rows `(len(rows), ...)`; `compute` is called for the rows that are not cached."""
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
    """Some rows of labelled data with the model's predictions.

    Attributes:
        whole: All of the data.
        all_predictions: The predicted class of every row of `whole` `(all,)`.
        rows: The row numbers of these cases `(n,)`.
        backend: The model; None if only inputs are needed.
        cache: Values computed from single inputs so far, shared by all cases of the same data.
    """

    whole: LabelledData
    all_predictions: Array
    rows: Array
    backend: ModelBackend | None = None
    cache: RowCache = field(default_factory=lambda: RowCache(0), repr=False)

    @classmethod
    def of(cls, data: LabelledData, predictions: Array, backend: ModelBackend | None = None) -> Cases:
        """Make cases of all of the data."""
        return cls(data, np.asarray(predictions), np.arange(len(data)), backend, RowCache(len(data)))

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, positions: Array) -> Cases:
        """Select cases by a mask or by positions."""
        return Cases(self.whole, self.all_predictions, self.rows[positions], self.backend, self.cache)

    def in_memory(self) -> Cases:
        """Read the inputs of these cases into memory; the result has no other rows."""
        own = self.whole.take(self.rows)
        data = replace(own, inputs=read(own.inputs))
        return Cases.of(data, self.all_predictions[self.rows], self.backend)

    def pieces(self) -> Iterator[Cases]:
        """Yield the cases; lazy data is read into memory in pieces."""
        if is_plain(self.whole.inputs):
            yield self
            return
        for part in shards(len(self)):
            yield Cases(self.whole, self.all_predictions, self.rows[part], self.backend).in_memory()

    @cached_property
    def labels(self) -> Array:
        """True classes `(n,)`."""
        return self.whole.labels[self.rows]

    @cached_property
    def predictions(self) -> Array:
        """Predicted classes `(n,)`."""
        return self.all_predictions[self.rows]

    @cached_property
    def wrong(self) -> Array:
        """Which are misclassified, bool `(n,)`."""
        wrong: Array = self.labels != self.predictions
        return wrong

    @property
    def arrays(self) -> Mapping[str, Array]:
        """The input arrays of all the data by name; one without a name is called ''."""
        inputs = self.whole.inputs
        return by_name(inputs)

    def inputs(self, name: str = "", index: Array | None = None) -> Array:
        """Return one input array of these cases as a table `(n, values)`, or only the columns `index`."""
        array = self.arrays[name]
        if index is None:
            return np.asarray(gather(array, self.rows)).reshape(len(self), -1)
        if len(self) == len(array):
            return np.asarray(array).reshape(len(array), -1)[:, index]
        return np.asarray(array).reshape(len(array), -1)[self.rows[:, None], index]

    def column(self, name: str) -> Array:
        """Return a metadata column as text `(n,)`."""
        column = self.whole.columns[name]
        return np.asarray(column[self.rows]).astype(str)

    def hidden_activations(self, layer: str) -> Array:
        """Return the inputs of a layer, one vector per case `(n, width)`; axes between are averaged.

        Raises:
            UsageError: There is no model to ask.
        """
        return self.cache.get(("hidden", layer), self.rows, lambda rows: self._compute_hidden(layer, rows))

    def _compute_hidden(self, layer: str, rows: Array) -> Array:
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
