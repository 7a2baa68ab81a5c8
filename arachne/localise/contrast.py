"""Contrast: what flows differently through a weight when the fault happens, times what that does to the decision.

With ā the mean of what enters a linear layer z = A(W) o, over negatives and over positives, and ḡ the mean over the
negatives of the gradient of (score of the wrong class - score of the true class) at z:

    contrast = |W * (gradient of A(W) (ā_neg - ā_pos) with respect to W, seeded with ḡ)|

For a dense layer this is |w_ij (ā_i,neg - ā_i,pos) ḡ_j|. Convolutions sum over positions and recurrent layers over
steps before the magnitude is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

import numpy as np

from arachne.backend import ModelBackend
from arachne.data.split import Part
from arachne.errors import NothingToRepairError, UsageError
from arachne.localise.base import Localisation, Localiser
from arachne.options import option
from arachne.suspects import Suspects
from arachne.values import Address, LayerInfo, Weights

MOST_WEIGHTS = 300
"""How many suspects there are in a large model: more of them learn the seen inputs by heart."""

SHARE = 0.05
"""In a small model, this share of the weights."""

FEWEST_WEIGHTS = 30

DEEP, DEEPEST = ("conv", "conv_transpose", "recurrent"), 3
"""The kinds of layers that are deep, and how many of the last of them are looked at."""

MOST_POSITIVES = 2000
"""How many positives the mean is taken over, at most."""


@dataclass(frozen=True, kw_only=True)
class Contrast(Localiser):
    """The weights through which the most flows differently when the fault happens, ranked over all layers together.

    Attributes:
        depth: Which layers are looked at where nobody names any: the dense layers at the end of the model (`tail`), the
            last convolutions or recurrent layers (`deep`), `all`, or `auto`: the tail, or the deep ones where there is
            none. A search in the tail takes seconds, because nothing before it is run again.
    """

    name = "contrast"

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
        """The contrast of every weight, float32, by `(layer, parameter)` in candidate order."""
        from arachne.localise.contrast_flows import contrasts
        from arachne.localise.linear_maps import LINEAR

        if not backend.SUPPORTS_GRADIENTS:
            raise UsageError(f"backend '{backend.NAME}' has no gradients, so only the localiser 'rs' works with it")
        if not len(part.negatives):
            raise NothingToRepairError("no negative inputs: the model does not make this mistake on the seen data")
        layers = self._deep_enough([info for info in self.layers(backend) if info.kind in LINEAR])
        positives = part.positives
        if len(positives) > MOST_POSITIVES:
            positives = np.sort(rng.choice(positives, MOST_POSITIVES, replace=False))
        return contrasts(backend, part, positives, [(info, sorted(self.parameters(info))) for info in layers])

    def _deep_enough(self, layers: list[LayerInfo]) -> list[LayerInfo]:
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


def largest(scores: Weights, size: int) -> list[Address]:
    """The addresses of the largest scores over all parameters together; the first of equals wins."""
    flat = np.concatenate([values.ravel() for values in scores.values()])
    order = np.argsort(-flat, kind="stable")[:size]
    starts = np.cumsum([0, *(values.size for values in scores.values())])
    found = []
    for number, ((layer, parameter), values) in enumerate(scores.items()):
        inside = order[(order >= starts[number]) & (order < starts[number + 1])] - starts[number]
        index = np.stack(np.unravel_index(inside, values.shape), axis=1).tolist()
        found += [Address(layer, parameter, tuple(place)) for place in index]
    return found
