"""GroupedCuts: cuts within a memory budget, one for all inputs, or one per group of inputs, made on demand."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from arachne.model.backend import Cut, ModelBackend, Weights
from arachne.model.lazy import is_lazy
from arachne.model.values import Array, count_bytes, read, take
from arachne.scoring.fitness import FitnessInputs
from arachne.weights.selection import Selection

MEASURED_INPUTS = 8
"""The number of inputs run to measure how many bytes a cut keeps per input."""

KEPT_RATIO = 3.0
"""A cut may keep this many times its layer's activations: other branches cross it, and copies are made."""


class GroupedCuts:
    """Cuts of the model for groups of inputs; at most two at a time if not all fit the budget.

    Args:
        backend: The model.
        fitness_inputs: The inputs.
        suspects: The weights that candidates change.
        order: The usual order of the inputs; neighbours in it share a group.
        memory: The budget in bytes.
        layers: The layers of the cut; those of the suspects when empty.
    """

    def __init__(
        self,
        backend: ModelBackend,
        fitness_inputs: FitnessInputs,
        suspects: Selection,
        order: Array,
        memory: int,
        layers: Sequence[str] = (),
    ) -> None:
        self._backend = backend
        self._fitness_inputs = fitness_inputs
        self.layers = tuple(layers) or suspects.layers
        n = len(fitness_inputs)
        size = max(1, min(n, int(memory / max(1, self._bytes_per_input()))))
        # Half the budget for the group that is always in use, the hardest inputs, half for the next one.
        size = n if size >= n else max(1, size // 2)
        self._groups = [order[start : start + size] for start in range(0, n, size)] if size < n else [np.arange(n)]
        self.group_of = np.empty(n, np.int64)
        self._position = np.empty(n, np.int64)
        for number, rows in enumerate(self._groups):
            self.group_of[rows] = number
            self._position[rows] = np.arange(len(rows))
        self._open: OrderedDict[int, Cut] = OrderedDict()
        self.made = 0
        """The number of cuts made so far."""
        first = self._cut(0)
        self.layer = first.layer
        self.continues = first.continues_from_outputs

    @property
    def whole(self) -> Cut | None:
        """The cut for all inputs, padded, in their original order; None if they do not fit the budget."""
        return self._cut(0) if len(self._groups) == 1 else None

    def outputs(self, rows: Array) -> Array:
        """Return the outputs of the cut's layer, `(rows, ...)`."""
        return np.concatenate([self._cut(g).outputs(self._position[rows[part]]) for g, part in self._parts(rows)])

    def scores_from_outputs(self, outputs: Array, rows: Array) -> Array:
        """Return scores `(rows, classes)` for other outputs of the layer."""
        return np.concatenate(
            [
                self._cut(g).scores_from_outputs(outputs[part], self._position[rows[part]])
                for g, part in self._parts(rows)
            ]
        )

    def scores_with(self, weights: Weights, rows: Array) -> Array:
        """Return scores `(rows, classes)` with other weights."""
        return np.concatenate(
            [self._cut(g).scores_with(weights, self._position[rows[part]]) for g, part in self._parts(rows)]
        )

    def _parts(self, rows: Array) -> list[tuple[int, slice]]:
        """Return runs of neighbouring rows of one group: the group, and the run."""
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
        inputs = take(self._fitness_inputs.inputs, slice(0, MEASURED_INPUTS))
        sizes = [
            sum(array.nbytes for array in use.entering.values()) + use.leaving.nbytes
            for layer in self.layers[:1]
            for use in self._backend.activations(inputs, layer)
        ]
        if is_lazy(inputs):  # a cut keeps its inputs, which are in memory for no other reason
            sizes.append(count_bytes(inputs))
        return KEPT_RATIO * sum(sizes) / min(MEASURED_INPUTS, len(self._fitness_inputs))
