"""Scores of a patched model, predicted from the original's cached activations and verified where it matters.

A patch in the dense tail of a model changes nothing before it, so its scores follow from the inputs of the tail; the
scores of a patch elsewhere follow from a cut, if there is one already. They are computed here in another order of sums,
or in other batches, than in a pass of the whole model. Therefore the patched model itself runs over every input whose
two best scores are close, and over every input whose class changes; if it disagrees on any of the latter, it runs over
all inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager

import numpy as np

from arachne.data.part import Part
from arachne.data.split import Split
from arachne.model.backend import ModelBackend
from arachne.model.values import Array, take
from arachne.scoring.base import Scorer, ignore_overflow
from arachne.scoring.cut import Cuts, CutScorer
from arachne.scoring.dense_tail import DenseTailScorer
from arachne.scoring.functions import apply
from arachne.scoring.low_rank import edited_scores, is_in_tail
from arachne.scoring.tail_cache import TailCache
from arachne.tasks import closest_two
from arachne.weights.edit import LowRankEdit
from arachne.weights.selection import Selection

CLOSE = 1e-3
"""Two scores are close when they differ by less than this share of the largest score's magnitude, plus one."""

EXACT_STORAGES = ("float32", "float64")
"""Storages of weights whose products a framework sums in float32 or better."""


def predict_scores(
    backend: ModelBackend,
    split: Split,
    selection: Selection,
    values: Array,
    cuts: Mapping[Part, Cuts] | None = None,
    edit: LowRankEdit | None = None,
) -> Callable[[Part], Array | None]:
    """Predict the patched scores `(n, classes)` of each part from cached activations; None if a pass is needed.

    Called while the model has its original weights. `cuts` are existing cuts, by their parts; `edit` is the change
    instead of selection and values, if it is a low-rank one.
    """
    cuts = cuts or {}
    found = [(part, _predict_part(backend, part, selection, values, cuts.get(part), edit)) for part in split.parts]
    return lambda wanted: next((scores for part, scores in found if part is wanted), None)


def predict_changed(
    backend: ModelBackend, part: Part, keys: Sequence[tuple[str, str]], change: AbstractContextManager[object]
) -> Array | None:
    """Predict the scores `(n, classes)` of a part with a change of whole parameters; None if a pass is needed.

    Args:
        backend: The model, with its original weights.
        part: The part, with activations of the original model if it is to be predicted.
        keys: The layers and parameters that change.
        change: Puts the change into the model while it is entered.
    """
    tail = _tail_from(backend, part, keys)
    if tail is None:
        return None
    first = min((layer for layer, _ in keys), key=tail.layers.index)
    tail.leaving(tail.layers[-1])  # computed now, with the original weights
    scores = np.asarray(tail.entering(first))
    with change, ignore_overflow():
        for layer in tail.layers_from(first, with_inputs=False):
            scores = scores @ layer.weight.T if layer.bias is None else scores @ layer.weight.T + layer.bias
            scores = apply(layer.functions, scores)
    return scores if np.isfinite(scores).all() else None


def _tail_from(backend: ModelBackend, part: Part, keys: Sequence[tuple[str, str]]) -> TailCache | None:
    """Return the cached activations of a part if everything that changes follows from them."""
    tail = part.cached_activations
    if not part.task.SINGLE or not isinstance(tail, TailCache) or not keys or not len(part):
        return None
    if not all(layer in tail and tail.can_run_from(layer) for layer, _ in keys):
        return None
    storages = {backend.info(layer).parameters[name].storage.name for layer, name in keys}
    return tail if storages <= set(EXACT_STORAGES) else None


def verify_scores(backend: ModelBackend, part: Part, expected: Array | None) -> Array:
    """Return the scores of a part, `(n, classes)`, by the patched model.

    Args:
        backend: The patched model.
        part: The part.
        expected: The predicted scores; the model runs over all inputs when None.
    """
    if expected is None:
        return part.read(backend.forward(part.data.inputs)).scores
    moved = part.task.decide(expected) != part.predictions
    asked = np.flatnonzero(moved | _close(expected))
    if not len(asked):
        return expected
    scores = backend.forward(take(part.data.inputs, asked))
    surely = ~_close(expected[asked])
    if np.any(part.task.decide(scores)[surely] != part.task.decide(expected[asked])[surely]):
        return part.read(backend.forward(part.data.inputs)).scores
    expected = expected.copy()
    expected[asked] = scores
    return expected


def _predict_part(
    backend: ModelBackend,
    part: Part,
    suspects: Selection,
    values: Array,
    cuts: Cuts | None,
    edit: LowRankEdit | None = None,
) -> Array | None:
    storages = {slice_.storage.name for slice_ in suspects.slices} if edit is None else {edit.storage.name}
    if not part.task.SINGLE or not len(part) or not storages or not storages <= set(EXACT_STORAGES):
        return None
    if edit is not None:
        tail = part.cached_activations if isinstance(part.cached_activations, TailCache) else None
        if not is_in_tail(tail, edit.key) and not (cuts is not None and cuts.saves([edit.layer])):
            return None
        shared = cuts or Cuts(backend, part.data.inputs)
        (scores,) = edited_scores(backend, tail, shared, [edit], np.arange(len(part)))
        return scores if np.isfinite(scores).all() else None
    scorer: Scorer | None = None
    if isinstance(part.cached_activations, TailCache):
        scorer = DenseTailScorer.of(backend, suspects, part.cached_activations)
    if scorer is None and cuts is not None and cuts.saves(suspects.layers):
        scorer = CutScorer(backend, cuts, suspects)
    if scorer is None:
        return None
    with ignore_overflow():
        scores = scorer.scores(values, np.arange(len(part)))
    return scores if np.isfinite(scores).all() else None


def _close(scores: Array) -> Array:
    """Tell which rows have their two best scores close together, bool `(n,)`."""
    if scores.shape[1] < 2:
        return np.ones(len(scores), bool)
    second, best = closest_two(scores)
    return np.asarray(best - second < CLOSE * (1 + np.abs(scores).max(axis=1)))
