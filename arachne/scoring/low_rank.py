"""Scores and gradients of a model in which one matrix or kernel W becomes W + left rightᵀ, for many values of left.

In the dense tail of a model the change costs no product with a whole matrix: with h what enters the layer and z what
leaves it in the original, z' = z + left (rightᵀ h), and how far each input goes along `right` is computed once.
Elsewhere the model runs from the layer on, behind a cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TypeGuard

import numpy as np

from arachne.model.backend import LossGradient, ModelBackend
from arachne.model.values import Array, batches
from arachne.scoring.base import Scorer, ignore_overflow
from arachne.scoring.cut import Cuts
from arachne.scoring.functions import apply
from arachne.scoring.tail_cache import TAIL_BATCH, TailCache
from arachne.scoring.tail_gradients import TailLayer, carry_back
from arachne.scoring.threads import one_thread
from arachne.weights.edit import LowRankEdit
from arachne.weights.storage import IntegerGrid


class TailLowRankScorer(Scorer):
    """Scores by the values of `left`, flattened, in a layer of the dense tail.

    Args:
        tail: What flows through the tail in the original model.
        layer: The changed layer.
        right: float32 `(in, rank)`.
        along: How far each input goes along `right`, float32 `(inputs, rank)`; computed here when None.
    """

    def __init__(self, tail: TailCache, layer: str, right: Array, along: Array | None = None) -> None:
        self._layers = tail.layers_from(layer, with_inputs=False)
        self._along = tail.project(layer, right) if along is None else along
        self._rank = right.shape[1]

    @ignore_overflow()
    @one_thread()
    def scores(self, values: Array, rows: Array) -> Array:
        left = self._as_matrix(values)
        found = [self._forward(left, rows[part])[-1].leaving for part in batches(len(rows), TAIL_BATCH)]
        return np.concatenate(found) if found else self._forward(left, rows)[-1].leaving

    @ignore_overflow()
    @one_thread()
    def gradients(self, values: Array, loss_gradient: LossGradient, rows: Array) -> Array:
        left = self._as_matrix(values)
        found = np.zeros(left.shape)
        for part in batches(len(rows), TAIL_BATCH):
            layers = self._forward(left, rows[part])
            seed = loss_gradient(layers[-1].leaving, part).astype(np.float32, copy=False)
            pulled = np.flatnonzero(seed.any(axis=1))  # a positive above its guard pulls at nothing
            if len(pulled):
                own = [replace(one, leaving=one.leaving[pulled]) for one in layers]
                gradient = carry_back(own, seed[pulled])[layers[0].name]
                found += gradient.T @ self._along[rows[part][pulled]]
        return found.ravel()

    def _as_matrix(self, values: Array) -> Array:
        return np.asarray(values, np.float32).reshape(-1, self._rank)

    def _forward(self, left: Array, rows: Array) -> list[TailLayer]:
        """Run the layers from the changed one to the scores; the last one's `leaving` are the scores."""
        first, *behind = self._layers
        found = [replace(first, leaving=np.asarray(first.leaving[rows]) + self._along[rows] @ left.T)]
        for layer in behind:
            scores = apply(found[-1].functions, found[-1].leaving) @ layer.weight.T
            found.append(replace(layer, leaving=scores if layer.bias is None else scores + layer.bias))
        return found


class CutLowRankScorer(Scorer):
    """Scores by the values of `left`, flattened, in any layer of any model, from that layer on.

    Args:
        backend: The original model.
        cuts: Its cuts.
        key: Layer and parameter.
        right: float32 `(in, rank)`.
        numbers: The inputs of the cuts that are scored, in order; all when None.
    """

    def __init__(
        self, backend: ModelBackend, cuts: Cuts, key: tuple[str, str], right: Array, numbers: Array | None = None
    ) -> None:
        self._key, self._right = key, right
        self._cut = cuts.at([key[0]])
        self._positions = cuts.positions if numbers is None else cuts.positions[numbers]
        self._original = np.asarray(backend.get_weights(key[0])[key[1]], np.float32)
        self._storage = backend.info(key[0]).parameters[key[1]].storage

    @ignore_overflow()
    def scores(self, values: Array, rows: Array) -> Array:
        return self._cut.scores_by_shard(self._weights(values), self._positions[rows])

    @ignore_overflow()
    def gradients(self, values: Array, loss_gradient: LossGradient, rows: Array) -> Array:
        whole = {self._key: (np.arange(len(self._original)),)}
        found = self._cut.gradients_by_shard(self._weights(values), loss_gradient, self._positions[rows], whole)
        gradient = found[self._key].reshape(len(self._original), -1).astype(np.float64)
        return np.asarray(gradient @ self._right).ravel()

    def _weights(self, values: Array) -> dict[tuple[str, str], Array]:
        left = np.asarray(values, np.float32).reshape(-1, self._right.shape[1])
        if isinstance(self._storage, IntegerGrid):
            return {self._key: LowRankEdit(*self._key, left, self._right, self._storage).add(self._original)}
        return {self._key: self._original + (left @ self._right.T).reshape(self._original.shape)}


def is_in_tail(tail: TailCache | None, key: tuple[str, str]) -> TypeGuard[TailCache]:
    """Whether there is a tail, and a parameter is the weight of one of its layers."""
    return tail is not None and key[1] == "weight" and tail.can_run_from(key[0])


def make_low_rank_scorer(
    backend: ModelBackend,
    tail: TailCache | None,
    cuts: Cuts,
    key: tuple[str, str],
    right: Array,
    numbers: Array | None = None,
    rounded: TailCache | None = None,
) -> Scorer:
    """Make the fastest scorer of a low-rank change; arguments as for the two scorers, tails of the same inputs."""
    if is_in_tail(tail, key):
        return TailLowRankScorer(tail, key[0], right)
    cut = CutLowRankScorer(backend, cuts, key, right, numbers)
    if not is_in_tail(rounded, key):
        return cut
    from arachne.scoring.rounded import RoundedScorer

    nothing = np.zeros(right.shape[1] * backend.info(key[0]).parameters[key[1]].shape[0])
    return RoundedScorer(cut, TailLowRankScorer(rounded, key[0], right), nothing, len(rounded))


def edited_scores(
    backend: ModelBackend,
    tail: TailCache | None,
    cuts: Cuts,
    edits: Sequence[LowRankEdit],
    rows: Array,
    numbers: Array | None = None,
) -> Iterator[Array]:
    """Give class scores `(rows, classes)` of a model with each of some edits.

    Args:
        backend: The original model.
        tail: What flows through its tail, if it has one.
        cuts: Its cuts.
        edits: The edits, best in the order of layers: those of one in a row share a pass over what enters it.
        rows: Numbers of inputs.
        numbers: Where the inputs lie in the cuts, in order; None if these hold the same inputs.
    """
    positions = cuts.positions if numbers is None else cuts.positions[numbers]
    for key, group in groupby(edits, key=lambda edit: edit.key):
        own = list(group)
        if is_in_tail(tail, key):
            along, start = tail.project(key[0], np.hstack([edit.right for edit in own])), 0
            for edit in own:
                columns = slice(start, start := start + edit.rank)
                scorer = TailLowRankScorer(tail, key[0], edit.right, along[:, columns])
                yield scorer.scores(edit.left.ravel(), rows)
            continue
        for edit in own:
            weights = {key: edit.add(np.asarray(backend.read_weights(key[0])[key[1]]))}
            with ignore_overflow():
                yield cuts.at([key[0]]).scores_by_shard(weights, positions[rows])
