"""A cut whose inputs live on many workers: each holds the model open for its own shards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from arachne.cluster.models import Change
from arachne.model.backend import Cut, LossGradient, ModelBackend
from arachne.model.cut import Elements, RowSubset, assemble_rows, group_by_shard, select_elements, sum_weights
from arachne.model.remote import CachedBuild
from arachne.model.sharding import shards
from arachne.model.values import Array, Inputs, Weights, count

if TYPE_CHECKING:
    from arachne.cluster.backend import ClusterBackend


Changes = Mapping[tuple[str, str], Change | None]
"""Changes of some parameters; None for a parameter that is unchanged."""


class ClusterCut(Cut):
    """A cut of every shard, held by its worker."""

    def __init__(self, backend: ClusterBackend, inputs: Inputs, layers: Sequence[str]) -> None:
        self._parts = shards(count(inputs))
        build = CachedBuild(make_cut, [(tuple(layers),)] * len(self._parts), f"cut {tuple(layers)}")
        self._pieces = backend.shard_calls(inputs, build=build)
        self.n = count(inputs)
        self._weights = copy_weights(backend, layers)
        ((layer, names, continues),) = self._ask(describe_cut, {0: ()})
        super().__init__(layer, [backend.info(name) for name in names], continues_from_outputs=continues)

    def outputs(self, rows: Array | None = None) -> Array:
        """Fetch the outputs from the workers that have them."""
        return self._each(outputs_of, rows, ())

    def scores_by_shard(self, weights: Weights, rows: Array) -> Array:
        """Compute all shards at once; a worker runs each as `Cut.scores_by_shard` does."""
        return self._scores_with(weights, rows)

    def gradients_by_shard(self, weights: Weights, loss: LossGradient, rows: Array, elements: Elements) -> Weights:
        """Compute all shards at once; a worker runs each as `Cut.gradients_by_shard` does."""
        return self._sum_gradients(weights, loss, rows, elements)

    def _scores_from_outputs(self, outputs: Array, rows: Array | None) -> Array:
        rows = np.arange(self.n) if rows is None else rows
        groups = group_by_shard(self.n, rows)
        found = self._ask(
            scores_from_outputs_of,
            {number: (outputs[at], rows[at] - self._parts[number].start) for number, at in groups},
        )
        return assemble_rows([(at, one) for (_, at), one in zip(groups, found, strict=True)])

    def _scores_with(self, weights: Weights, rows: Array | None) -> Array:
        return self._each(scores_with_of, rows, (self._changes(weights),))

    def _weight_gradients(self, weights: Weights, loss: LossGradient, rows: Array | None) -> Weights:
        return self._sum_gradients(weights, loss, np.arange(self.n) if rows is None else rows, None)

    def _sum_gradients(self, weights: Weights, loss: LossGradient, rows: Array, elements: Elements | None) -> Weights:
        groups, changes = group_by_shard(self.n, rows), self._changes(weights)
        asked = {
            number: (rows[at] - self._parts[number].start, changes, RowSubset(loss, at), elements)
            for number, at in groups
        }
        first, *others = self._ask(gradients_of, asked)
        return sum_weights(first, others)

    def _changes(self, weights: Weights) -> Changes:
        """Return how weights differ from those the model was cut with; workers have these, so that little is sent."""
        return {key: Change.between(key, self._weights[key], values) for key, values in weights.items()}

    def _ask(self, work: Any, arguments: dict[int, tuple[Any, ...]]) -> list[Any]:
        return [one.value for one in self._pieces(work, arguments)]

    def _each(self, work: Any, rows: Array | None, arguments: tuple[Any, ...]) -> Array:
        rows = np.arange(self.n) if rows is None else rows
        groups = group_by_shard(self.n, rows)
        found = self._ask(work, {number: (rows[at] - self._parts[number].start, *arguments) for number, at in groups})
        return assemble_rows([(at, one) for (_, at), one in zip(groups, found, strict=True)])


@dataclass(frozen=True, eq=False)
class HeldCut:
    """A shard's cut on its worker, and the weights that the model was cut with."""

    cut: Cut
    weights: Weights

    def with_changes(self, changes: Changes) -> Weights:
        """Return whole parameters with some changes in them."""
        return {
            key: self.weights[key] if change is None else change.apply_to(self.weights[key])
            for key, change in changes.items()
        }


def copy_weights(backend: ModelBackend, layers: Sequence[str]) -> Weights:
    """Copy the parameters of some layers."""
    return {(name, parameter): values for name in layers for parameter, values in backend.get_weights(name).items()}


def make_cut(backend: ModelBackend, inputs: Inputs, rows: slice, layers: Sequence[str]) -> HeldCut:
    """Cut the model for one shard."""
    return HeldCut(backend.cut(inputs, layers), copy_weights(backend, layers))


def describe_cut(held: HeldCut) -> tuple[str, list[str], bool]:
    """Return a cut's layer, the layers it was made for and `continues_from_outputs`: all shards have the same."""
    return held.cut.layer, list(held.cut.layers), held.cut.continues_from_outputs


def outputs_of(held: HeldCut, rows: Array) -> Array:
    """Return the layer's outputs for some rows of a shard."""
    return held.cut.outputs(rows)


def scores_from_outputs_of(held: HeldCut, outputs: Array, rows: Array) -> Array:
    """Return the scores of some rows of a shard, from other outputs."""
    return held.cut.scores_from_outputs(outputs, rows)


def scores_with_of(held: HeldCut, rows: Array, changes: Changes) -> Array:
    """Return the scores of some rows of a shard, with other weights."""
    return held.cut.scores_with(held.with_changes(changes), rows)


def gradients_of(
    held: HeldCut, rows: Array, changes: Changes, loss: LossGradient, elements: Elements | None
) -> Weights:
    """Return the gradients summed over some rows of a shard, all of them or selected elements."""
    found = held.cut.weight_gradients(held.with_changes(changes), loss, rows)
    return found if elements is None else select_elements(found, elements)
