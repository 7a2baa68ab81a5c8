"""A cut whose inputs are with many workers: each holds the model open for its own shards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from arachne.backend import Cut, ModelBackend, Pull
from arachne.cluster.models import Change
from arachne.cuts import Elements, OfRows, added_up, by_shard, picked, put_together
from arachne.elsewhere import Making
from arachne.shards import shards
from arachne.values import Array, Inputs, Weights, count

if TYPE_CHECKING:
    from arachne.cluster.backend import ClusterBackend


Changes = Mapping[tuple[str, str], Change | None]
"""What differs in some parameters; nothing where they are as they were."""


class ClusterCut(Cut):
    """Every shard has a cut of its own, kept by its worker."""

    def __init__(self, backend: ClusterBackend, inputs: Inputs, layers: Sequence[str]) -> None:
        self._parts = shards(count(inputs))
        making = Making(cut_of, [(tuple(layers),)] * len(self._parts), f"cut {tuple(layers)}")
        self._pieces = backend.pieces(inputs, making=making)
        self.n = count(inputs)
        self._weights = weights_behind(backend, layers)
        (told,) = self._asked(told_of, {0: ()})
        super().__init__(told[0], [backend.info(name) for name in told[1]], continues_from_outputs=told[2])

    def outputs(self, rows: Array | None = None) -> Array:
        """From the workers that have them."""
        return self._each(outputs_of, rows, ())

    def scores_by_shard(self, weights: Weights, rows: Array) -> Array:
        """As `Cut.scores_by_shard`, all shards at once."""
        return self._scores_with(weights, rows)

    def gradients_by_shard(self, weights: Weights, pull: Pull, rows: Array, elements: Elements) -> Weights:
        """As `Cut.gradients_by_shard`, all shards at once."""
        return self._added(weights, pull, rows, elements)

    def _scores_from_outputs(self, outputs: Array, rows: Array | None) -> Array:
        rows = np.arange(self.n) if rows is None else rows
        groups = by_shard(self.n, rows)
        found = self._asked(
            scores_from_outputs_of,
            {number: (outputs[at], rows[at] - self._parts[number].start) for number, at in groups},
        )
        return put_together([(at, one) for (_, at), one in zip(groups, found, strict=True)])

    def _scores_with(self, weights: Weights, rows: Array | None) -> Array:
        return self._each(scores_with_of, rows, (self._changes(weights),))

    def _weight_gradients(self, weights: Weights, pull: Pull, rows: Array | None) -> Weights:
        return self._added(weights, pull, np.arange(self.n) if rows is None else rows, None)

    def _added(self, weights: Weights, pull: Pull, rows: Array, elements: Elements | None) -> Weights:
        groups, changes = by_shard(self.n, rows), self._changes(weights)
        asked = {
            number: (rows[at] - self._parts[number].start, changes, OfRows(pull, at), elements) for number, at in groups
        }
        first, *others = self._asked(gradients_of, asked)
        return added_up(first, others)

    def _changes(self, weights: Weights) -> Changes:
        """What differs from the weights that the model was cut with, which is little: workers have the rest."""
        return {place: Change.between(place, self._weights[place], values) for place, values in weights.items()}

    def _asked(self, work: Any, arguments: dict[int, tuple[Any, ...]]) -> list[Any]:
        return [one.value for one in self._pieces(work, arguments)]

    def _each(self, work: Any, rows: Array | None, arguments: tuple[Any, ...]) -> Array:
        rows = np.arange(self.n) if rows is None else rows
        groups = by_shard(self.n, rows)
        found = self._asked(work, {number: (rows[at] - self._parts[number].start, *arguments) for number, at in groups})
        return put_together([(at, one) for (_, at), one in zip(groups, found, strict=True)])


@dataclass(frozen=True, eq=False)
class Held:
    """A shard's cut where it is, and the weights that the model was cut with."""

    cut: Cut
    weights: Weights

    def with_changes(self, changes: Changes) -> Weights:
        """The parameters that a question is about, whole."""
        return {
            place: self.weights[place] if change is None else change.applied(self.weights[place])
            for place, change in changes.items()
        }


def weights_behind(backend: ModelBackend, layers: Sequence[str]) -> Weights:
    """The parameters of some layers as they are now."""
    return {(name, parameter): values for name in layers for parameter, values in backend.get_weights(name).items()}


def cut_of(backend: ModelBackend, inputs: Inputs, rows: slice, layers: Sequence[str]) -> Held:
    """A shard's cut."""
    return Held(backend.cut(inputs, layers), weights_behind(backend, layers))


def told_of(held: Held) -> tuple[str, list[str], bool]:
    """What is the same for all shards: where it is cut, for which layers, and whether it goes on from outputs."""
    return held.cut.layer, list(held.cut.layers), held.cut.continues_from_outputs


def outputs_of(held: Held, rows: Array) -> Array:
    """What leaves the layer for some rows of a shard."""
    return held.cut.outputs(rows)


def scores_from_outputs_of(held: Held, outputs: Array, rows: Array) -> Array:
    """The scores of some rows of a shard from other outputs."""
    return held.cut.scores_from_outputs(outputs, rows)


def scores_with_of(held: Held, rows: Array, changes: Changes) -> Array:
    """The scores of some rows of a shard with other weights."""
    return held.cut.scores_with(held.with_changes(changes), rows)


def gradients_of(held: Held, rows: Array, changes: Changes, pull: Pull, elements: Elements | None) -> Weights:
    """The part that some rows of a shard have in the gradients, or in some elements of them."""
    found = held.cut.weight_gradients(held.with_changes(changes), pull, rows)
    return found if elements is None else picked(found, elements)
