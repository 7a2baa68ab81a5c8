"""Localisers that give every weight one score and take the largest over all layers together."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import ClassVar

import numpy as np

from arachne.backend import ModelBackend
from arachne.data.split import Part
from arachne.errors import NothingToRepairError, UsageError
from arachne.localise.base import Localisation, Localiser
from arachne.options import option
from arachne.suspects import Suspects
from arachne.values import Address, Array, LayerInfo, Weights

MOST_WEIGHTS = 300
"""How many suspects there are in a large model: more of them learn the seen inputs by heart."""

SHARE = 0.05
"""In a small model, this share of the weights."""

FEWEST_WEIGHTS = 30

DEEP, DEEPEST = ("conv", "conv_transpose", "recurrent"), 3
"""The kinds of layers that are deep, and how many of the last of them are looked at."""

BLOCK = 1 << 16
"""How many scores are compared at once."""

MOST_POSITIVES = 2000
"""How many positives the mean is taken over, at most."""


@dataclass(frozen=True, kw_only=True)
class Ranked(Localiser):
    """The weights with the largest scores.

    Attributes:
        depth: Which layers are looked at where nobody names any: the dense layers at the end of the model (`tail`), the
            last convolutions or recurrent layers (`deep`), `all`, or `auto`: the tail, or the deep ones where there is
            none. A search in the tail takes seconds, because nothing before it is run again.
    """

    NEEDS_GRADIENTS: ClassVar[bool] = True

    depth: str = option(
        "auto", "Which layers to look at, unless some are named.", choices=("auto", "tail", "deep", "all")
    )

    def localise(self, backend: ModelBackend, part: Part, *, rng: np.random.Generator) -> Localisation:
        scores = self.scores(backend, part, rng=rng)
        n = sum(values.size for values in scores.values())
        size = min(self.count or default_count(n), n)
        suspects = Suspects.of(backend, largest(scores, size))
        return Localisation(self.name, suspects, (), len(suspects), n)

    def scores(self, backend: ModelBackend, part: Part, *, rng: np.random.Generator) -> Weights:
        """The score of every weight by `(layer, parameter)`, in candidate order."""
        if self.NEEDS_GRADIENTS and not backend.SUPPORTS_GRADIENTS:
            raise UsageError(f"backend '{backend.NAME}' has no gradients, so only the localiser 'rs' works with it")
        if not len(part.negatives):
            raise NothingToRepairError("no negative inputs: the model does not make this mistake on the seen data")
        positives = part.positives
        if len(positives) > MOST_POSITIVES:
            positives = np.sort(rng.choice(positives, MOST_POSITIVES, replace=False))
        return self._scores(backend, part, positives, rng=rng)

    @abstractmethod
    def _scores(self, backend: ModelBackend, part: Part, positives: Array, *, rng: np.random.Generator) -> Weights:
        """As `scores`, with the rows of the positives to look at; there is a negative at least."""

    def deep_enough(self, layers: list[LayerInfo]) -> list[LayerInfo]:
        """Those of some layers, in order of execution, that `depth` means."""
        if self.depth == "all" or self.include or self.exclude:
            return layers
        tail = (
            [] if self.depth == "deep" else list(takewhile(lambda info: info.kind == "dense", reversed(layers)))[::-1]
        )
        deep = [] if self.depth == "tail" else deep_layers(layers)
        return tail or deep or layers


def deep_layers(layers: Sequence[LayerInfo]) -> list[LayerInfo]:
    """The last convolutions or recurrent layers of a model."""
    return [info for info in layers if info.kind in DEEP][-DEEPEST:]


def default_count(n_weights: int) -> int:
    """How many suspects to take from a model with this many weights."""
    return max(FEWEST_WEIGHTS, min(MOST_WEIGHTS, int(SHARE * n_weights)))


def first_largest(values: Array, size: int) -> Array:
    """The places of the `size` largest of some numbers, largest first; the first of equals wins."""
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


def largest(scores: Weights, size: int) -> list[Address]:
    """The addresses of the largest scores over all parameters together; the first of equals wins.

    Only the largest of each parameter can be among the largest of all, so these are never put together.
    """
    tops = {place: first_largest(values.ravel(), size) for place, values in scores.items()}
    merged = np.concatenate([scores[place].ravel()[rows] for place, rows in tops.items()])
    order = np.sort(first_largest(merged, size))
    found, start = [], 0
    for (layer, parameter), rows in tops.items():
        inside = rows[order[(order >= start) & (order < start + len(rows))] - start]
        index = np.stack(np.unravel_index(inside, scores[layer, parameter].shape), axis=1).tolist()
        found += [Address(layer, parameter, tuple(place)) for place in index]
        start += len(rows)
    return found
