"""Scores of a model with a low-rank edit in its dense tail, from what flows through the tail in the original."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise

import numpy as np

from arachne.model.backend import ModelBackend
from arachne.model.values import Array, batches
from arachne.scoring.base import ignore_overflow
from arachne.scoring.functions import apply, chain
from arachne.scoring.tail_cache import TAIL_BATCH, TailCache
from arachne.scoring.threads import one_thread
from arachne.weights.edit import LowRankEdit


def can_score(edit: LowRankEdit | None, tail: TailCache | None) -> bool:
    """Whether there is an edit, and it changes the weight of a layer in the tail."""
    return edit is not None and tail is not None and edit.parameter == "weight" and edit.layer in tail


def edited_scores(backend: ModelBackend, tail: TailCache, edits: Sequence[LowRankEdit], rows: Array) -> Iterator[Array]:
    """Give class scores `(rows, classes)` of a model with each of some edits; each layer's inputs are read once.

    Args:
        backend: The original model.
        tail: What flows through its tail.
        edits: The edits, each of the weight of a layer in the tail, best in the order of layers.
        rows: Numbers of inputs.
    """
    for layer, own in groupby(edits, key=lambda edit: edit.layer):
        entering = tail.entering(layer)
        for edit in own:
            parts = batches(len(rows), TAIL_BATCH)
            along = [
                np.zeros((0, edit.rank), np.float32),
                *(np.asarray(entering[rows[part]]) @ edit.right for part in parts),
            ]
            with ignore_overflow():
                yield scores_along(backend, tail, layer, np.concatenate(along), edit.left, rows)


@one_thread()
def scores_along(backend: ModelBackend, tail: TailCache, layer: str, along: Array, left: Array, rows: Array) -> Array:
    """Run the layers behind a changed one in NumPy; the change itself costs no product with a whole matrix.

    Args:
        backend: The original model.
        tail: What flows through its tail.
        layer: The changed layer.
        along: How far what enters it goes along each direction of the change, float32 `(rows, rank)`.
        left: What leaves it changes by for each unit along them, float32 `(out, rank)`.
        rows: Numbers of inputs.
    """
    behind = [backend.info(name) for name in tail.layers[tail.layers.index(layer) :]]
    weights = [backend.read_weights(info.name) for info in behind]
    leaving, found = tail.leaving(layer), []
    for part in batches(len(rows), TAIL_BATCH):
        scores = leaving[rows[part]] + along[part] @ left.T
        for (before, _), own in zip(pairwise(behind), weights[1:], strict=True):
            scores = apply(chain(before.followed_by) or (), scores) @ own["weight"].astype(np.float32).T
            scores = scores + own["bias"].astype(np.float32) if "bias" in own else scores
        found.append(scores)
    return np.concatenate(found) if found else leaving[rows]
