"""A cut whose inputs are with many workers: each holds the model open for its own shards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from arachne.backend import Cut, ModelBackend, Pull
from arachne.cuts import OfRows, added_up, by_shard, put_together
from arachne.elsewhere import Making
from arachne.shards import shards
from arachne.values import Array, Inputs, Weights, count

if TYPE_CHECKING:
    from arachne.cluster.backend import ClusterBackend


class ClusterCut(Cut):
    """Every shard has a cut of its own, kept by its worker."""

    def __init__(self, backend: ClusterBackend, inputs: Inputs, layers: Sequence[str]) -> None:
        self._parts = shards(count(inputs))
        making = Making(cut_of, [(tuple(layers),)] * len(self._parts), f"cut {tuple(layers)}")
        self._pieces = backend.pieces(inputs, making=making)
        self.n = count(inputs)
        (told,) = self._asked(told_of, {0: ()})
        super().__init__(told[0], [backend.info(name) for name in told[1]], continues_from_outputs=told[2])

    def outputs(self, rows: Array | None = None) -> Array:
        """From the workers that have them."""
        return self._each(outputs_of, rows, ())

    def scores_by_shard(self, weights: Weights, rows: Array) -> Array:
        """As `Cut.scores_by_shard`, all shards at once."""
        return self._scores_with(weights, rows)

    def gradients_by_shard(self, weights: Weights, pull: Pull, rows: Array) -> Weights:
        """As `Cut.gradients_by_shard`, all shards at once."""
        return self._weight_gradients(weights, pull, rows)

    def _scores_from_outputs(self, outputs: Array, rows: Array | None) -> Array:
        rows = np.arange(self.n) if rows is None else rows
        groups = by_shard(self.n, rows)
        found = self._asked(
            scores_from_outputs_of,
            {number: (outputs[at], rows[at] - self._parts[number].start) for number, at in groups},
        )
        return put_together([(at, one) for (_, at), one in zip(groups, found, strict=True)])

    def _scores_with(self, weights: Weights, rows: Array | None) -> Array:
        return self._each(scores_with_of, rows, (dict(weights),))

    def _weight_gradients(self, weights: Weights, pull: Pull, rows: Array | None) -> Weights:
        rows = np.arange(self.n) if rows is None else rows
        groups = by_shard(self.n, rows)
        first, *others = self._asked(
            gradients_of,
            {number: (rows[at] - self._parts[number].start, dict(weights), OfRows(pull, at)) for number, at in groups},
        )
        return added_up(first, others)

    def _asked(self, work: Any, arguments: dict[int, tuple[Any, ...]]) -> list[Any]:
        return [one.value for one in self._pieces(work, arguments)]

    def _each(self, work: Any, rows: Array | None, arguments: tuple[Any, ...]) -> Array:
        rows = np.arange(self.n) if rows is None else rows
        groups = by_shard(self.n, rows)
        found = self._asked(work, {number: (rows[at] - self._parts[number].start, *arguments) for number, at in groups})
        return put_together([(at, one) for (_, at), one in zip(groups, found, strict=True)])


def cut_of(backend: ModelBackend, inputs: Inputs, rows: slice, layers: Sequence[str]) -> Cut:
    """A shard's cut."""
    return backend.cut(inputs, layers)


def told_of(cut: Cut) -> tuple[str, list[str], bool]:
    """What is the same for all shards: where it is cut, for which layers, and whether it goes on from outputs."""
    return cut.layer, list(cut.layers), cut.continues_from_outputs


def outputs_of(cut: Cut, rows: Array) -> Array:
    """What leaves the layer for some rows of a shard."""
    return cut.outputs(rows)


def scores_from_outputs_of(cut: Cut, outputs: Array, rows: Array) -> Array:
    """The scores of some rows of a shard from other outputs."""
    return cut.scores_from_outputs(outputs, rows)


def scores_with_of(cut: Cut, rows: Array, weights: Weights) -> Array:
    """The scores of some rows of a shard with other weights."""
    return cut.scores_with(weights, rows)


def gradients_of(cut: Cut, rows: Array, weights: Weights, pull: Pull) -> Weights:
    """The part that some rows of a shard have in the gradients."""
    return cut.weight_gradients(weights, pull, rows)
