"""Localisers that give every weight one score and take the largest over all layers together."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import ClassVar

import numpy as np

from arachne.data.part import Part
from arachne.errors import NothingToRepairError, UsageError
from arachne.localise.base import Localisation, Localiser
from arachne.model.backend import ModelBackend
from arachne.model.values import Array, LayerInfo, Weights, take
from arachne.plugins.options import option
from arachne.weights.selection import Selection

MAX_SUSPECTS = 300
"""The number of suspects in a large model: with more, a search overfits the seen inputs."""

SUSPECT_SHARE = 0.05
"""The share of the weights that are suspects in a small model."""

MIN_SUSPECTS = 30

DEEP_KINDS, MAX_DEEP_LAYERS = ("conv", "conv_transpose", "recurrent"), 3
"""The kinds of layers that `depth` calls deep, and how many of the last of them are used."""

BLOCK = 1 << 16
"""The number of scores compared at once."""

MAX_POSITIVES = 2000
"""The largest number of positives that the mean is computed over."""


@dataclass(frozen=True, kw_only=True)
class Ranked(Localiser):
    """The weights with the largest scores.

    Attributes:
        depth: The layers to localise in if the user names none: the dense layers at the end of the model (`tail`), the
            last convolutions or recurrent layers (`deep`), `all`, or `auto`: the tail, or the deep layers if there is
            none. A search in the tail takes seconds, because nothing before it runs again. The dense layers of a
            transformer that work on words or patches are no part of the tail where the last layer works on one vector.
    """

    NEEDS_GRADIENTS: ClassVar[bool] = True

    depth: str = option(
        "auto", "Which layers to look at, unless some are named.", choices=("auto", "tail", "deep", "all")
    )

    def localise(self, backend: ModelBackend, part: Part, *, rng: np.random.Generator) -> Localisation:
        scores = self.scores(backend, part, rng=rng)
        n = sum(values.size for values in scores.values())
        size = min(self.count or default_count(n), n)
        suspects = Selection.at(backend, largest(scores, size))
        return Localisation(self.name, suspects, (), len(suspects), n)

    def scores(self, backend: ModelBackend, part: Part, *, rng: np.random.Generator) -> Weights:
        """Compute the score of every weight by `(layer, parameter)`, in candidate order."""
        if self.NEEDS_GRADIENTS and not backend.SUPPORTS_GRADIENTS:
            raise UsageError(f"backend '{backend.NAME}' has no gradients, so only the localiser 'rs' works with it")
        if not len(part.negatives):
            raise NothingToRepairError("no negative inputs: the model does not make this mistake on the seen data")
        positives = part.positives
        if len(positives) > MAX_POSITIVES:
            positives = np.sort(rng.choice(positives, MAX_POSITIVES, replace=False))
        return self._scores(backend, part, positives, rng=rng)

    @abstractmethod
    def _scores(self, backend: ModelBackend, part: Part, positives: Array, *, rng: np.random.Generator) -> Weights:
        """Compute the scores from all negatives, at least one, and from these rows of positives."""

    def filter_by_depth(self, backend: ModelBackend, part: Part, layers: list[LayerInfo]) -> list[LayerInfo]:
        """Filter layers, in order of execution, by `depth`."""
        if self.depth == "all" or self.include or self.exclude:
            return layers
        tail = [] if self.depth == "deep" else _tail(backend, part, layers)
        deep = [] if self.depth == "tail" else deep_layers(layers)
        return tail or deep or layers


def _tail(backend: ModelBackend, part: Part, layers: Sequence[LayerInfo]) -> list[LayerInfo]:
    """Return the dense layers at the end that work on as many axes as the last one: behind a transformer's blocks."""
    dense = list(takewhile(lambda info: info.kind == "dense", reversed(layers)))
    if len(dense) < 2:
        return dense
    names, cache = [info.name for info in dense], part.cached_activations
    known = None if cache is None else cache.trace(np.arange(1), names)
    trace = known or backend.trace(take(part.data.inputs, slice(0, 1)), names)
    axes = [max((use.leaving.ndim for use in trace.activations[name]), default=0) for name in names]
    return [info for info, _ in takewhile(lambda one: one[1] == axes[0], zip(dense, axes, strict=True))][::-1]


def deep_layers(layers: Sequence[LayerInfo]) -> list[LayerInfo]:
    """Return the last convolutions or recurrent layers of a model."""
    return [info for info in layers if info.kind in DEEP_KINDS][-MAX_DEEP_LAYERS:]


def default_count(n_weights: int) -> int:
    """Return the number of suspects in a model with this many weights."""
    return max(MIN_SUSPECTS, min(MAX_SUSPECTS, int(SUSPECT_SHARE * n_weights)))


def first_largest(values: Array, size: int) -> Array:
    """Return the positions of the `size` largest of some numbers, largest first; the first of equals wins."""
    if size >= len(values):
        return np.argsort(-values, kind="stable")
    near = np.arange(0)
    for start in range(0, len(values), BLOCK):
        block = values[start : start + BLOCK]
        # What is below the largest so far can be left out at once.
        above = np.arange(len(block)) if len(near) < size else np.flatnonzero(block > values[near[-1]])
        near = np.concatenate([near, start + above])
        near = near[np.argsort(-values[near], kind="stable")][:size]
    return near


def largest(scores: Weights, size: int) -> dict[tuple[str, str], Array]:
    """Find the largest scores over all parameters, as positions in each flattened one; the first of equals wins.

    Only the largest of each parameter can be among the largest of all, so the whole is never concatenated.
    """
    tops = {key: first_largest(values.ravel(), size) for key, values in scores.items()}
    merged = np.concatenate([scores[key].ravel()[rows] for key, rows in tops.items()])
    order = np.sort(first_largest(merged, size))
    found, start = {}, 0
    for key, rows in tops.items():
        found[key] = rows[order[(order >= start) & (order < start + len(rows))] - start]
        start += len(rows)
    return found
