"""Cuts within a memory budget: one for all inputs, or one per group of inputs, made again when it is needed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from arachne.backend import Cut, ModelBackend, Weights
from arachne.evaluate.fitness import FitnessInputs
from arachne.lazy import is_lazy
from arachne.suspects import Suspects
from arachne.values import Array, read, take

MEASURED = 8
"""How many inputs are run to find out how many bytes a cut keeps per input."""

KEPT_RATIO = 3.0
"""A cut may keep this many times what enters and leaves its layer: other branches cross it, and copies are made."""


class GroupedCuts:
    """The model held open for groups of inputs, two of them at a time where not all fit the budget.

    Args:
        backend: The model.
        fitness_inputs: The inputs.
        suspects: What the candidates touch.
        order: The order in which inputs are usually looked at; neighbours in it share a group.
        memory: The budget in bytes.
        layers: Where the model is held open; at the layers candidates touch when empty.
    """

    def __init__(
        self,
        backend: ModelBackend,
        fitness_inputs: FitnessInputs,
        suspects: Suspects,
        order: Array,
        memory: int,
        layers: Sequence[str] = (),
    ) -> None:
        self._backend = backend
        self._fitness_inputs = fitness_inputs
        self.layers = tuple(layers) or tuple(dict.fromkeys(address.layer for address in suspects.addresses))
        n = len(fitness_inputs)
        size = max(1, min(n, int(memory / max(1, self._bytes_per_input()))))
        # Half the budget for the group that is always in use, the hardest inputs, half for the next one.
        size = n if size >= n else max(1, size // 2)
        self._groups = [order[start : start + size] for start in range(0, n, size)] if size < n else [np.arange(n)]
        self.group_of = np.empty(n, np.int64)
        self._place = np.empty(n, np.int64)
        for number, rows in enumerate(self._groups):
            self.group_of[rows] = number
            self._place[rows] = np.arange(len(rows))
        self._open: OrderedDict[int, Cut] = OrderedDict()
        self.made = 0
        """How many cuts were made."""
        first = self._cut(0)
        self.layer = first.layer
        self.continues = first.continues_from_outputs

    @property
    def whole(self) -> Cut | None:
        """The cut for all inputs, padded, in their own order; None where they do not fit the budget."""
        return self._cut(0) if len(self._groups) == 1 else None

    def outputs(self, rows: Array) -> Array:
        """What leaves the cut's layer, `(rows, ...)`."""
        return np.concatenate([self._cut(g).outputs(self._place[rows[part]]) for g, part in self._parts(rows)])

    def scores_from_outputs(self, outputs: Array, rows: Array) -> Array:
        """Scores `(rows, classes)` when the layer gives other outputs."""
        return np.concatenate(
            [self._cut(g).scores_from_outputs(outputs[part], self._place[rows[part]]) for g, part in self._parts(rows)]
        )

    def scores_with(self, weights: Weights, rows: Array) -> Array:
        """Scores `(rows, classes)` with other weights."""
        return np.concatenate(
            [self._cut(g).scores_with(weights, self._place[rows[part]]) for g, part in self._parts(rows)]
        )

    def _parts(self, rows: Array) -> list[tuple[int, slice]]:
        """Runs of neighbouring rows of one group: the group, and the run."""
        groups = self.group_of[rows]
        edges = [0, *(np.flatnonzero(np.diff(groups)) + 1).tolist(), len(rows)]
        return [(int(groups[a]), slice(a, b)) for a, b in pairwise(edges)]

    def _cut(self, group: int) -> Cut:
        if group in self._open:
            return self._open[group]
        if len(self._open) > 1:
            self._open.pop(next(number for number in self._open if number))
        whole = len(self._groups) == 1
        inputs = self._fitness_inputs.padded if whole else take(self._fitness_inputs.padded, self._groups[group])
        self._open[group] = self._backend.cut(read(inputs), self.layers)
        self.made += 1
        return self._open[group]

    def _bytes_per_input(self) -> float:
        inputs = take(self._fitness_inputs.inputs, slice(0, MEASURED))
        sizes = [
            sum(array.nbytes for array in use.entering.values()) + use.leaving.nbytes
            for layer in self.layers[:1]
            for use in self._backend.activations(inputs, layer)
        ]
        if is_lazy(inputs):  # a cut keeps its inputs, which are in memory for no other reason
            sizes += [array.nbytes for array in (inputs.values() if isinstance(inputs, Mapping) else [inputs])]
        return KEPT_RATIO * sum(sizes) / min(MEASURED, len(self._fitness_inputs))
