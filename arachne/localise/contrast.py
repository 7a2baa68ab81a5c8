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

from arachne.backend import ModelBackend, Trace
from arachne.data.split import Part
from arachne.errors import NothingToRepairError, UsageError
from arachne.localise.base import Localisation, Localiser
from arachne.localise.impact import HELD, added, bytes_held
from arachne.localise.linear_maps import LINEAR, Entering, Flow, Linear
from arachne.options import option
from arachne.suspects import Suspects
from arachne.values import Address, Array, Inputs, LayerInfo, Weights, count, take

MOST_WEIGHTS = 300
"""How many suspects there are in a large model: more of them learn the seen inputs by heart."""

SHARE = 0.05
"""In a small model, this share of the weights."""

FEWEST_WEIGHTS = 30

MOST_POSITIVES = 2000
"""So many positives are enough for a mean."""


@dataclass(frozen=True, kw_only=True)
class Contrast(Localiser):
    """The weights through which the most flows differently when the fault happens, ranked over all layers together.

    Attributes:
        depth: Which layers are looked at where nobody names any: `all`, the dense layers at the end of the model
            (`tail`), or `auto`: the tail where it has a hidden layer, else all.
    """

    name = "contrast"

    depth: str = option("auto", "Which layers to look at, unless some are named.", choices=("auto", "tail", "all"))

    def localise(self, backend: ModelBackend, part: Part, *, rng: np.random.Generator) -> Localisation:
        scores = self.scores(backend, part, rng=rng)
        n = sum(values.size for values in scores.values())
        size = min(self.count or default_count(n), n)
        suspects = Suspects.of(backend, largest(scores, size))
        return Localisation(self.name, suspects, (), len(suspects), n)

    def scores(self, backend: ModelBackend, part: Part, *, rng: np.random.Generator) -> Weights:
        """The contrast of every weight, float32, by `(layer, parameter)` in candidate order."""
        if not backend.SUPPORTS_GRADIENTS:
            raise UsageError(f"backend '{backend.NAME}' has no gradients, so only the localiser 'rs' works with it")
        if not len(part.negatives):
            raise NothingToRepairError("no negative inputs: the model does not make this mistake on the seen data")
        layers = self._deep_enough([info for info in self.layers(backend) if info.kind in LINEAR])
        positives = part.positives
        if len(positives) > MOST_POSITIVES:
            positives = np.sort(rng.choice(positives, MOST_POSITIVES, replace=False))
        flows = _contrasts(backend, part, positives, layers)
        found: dict[tuple[str, str], Array] = {}
        for info in layers:
            weights, linear = backend.get_weights(info.name), LINEAR[info.kind](info)
            for parameter in sorted(self.parameters(info)):
                found[info.name, parameter] = _contrast(linear, parameter, weights[parameter], flows[info.name])
        return found

    def _deep_enough(self, layers: list[LayerInfo]) -> list[LayerInfo]:
        if self.depth == "all" or self.include or self.exclude:
            return layers
        tail = list(takewhile(lambda info: info.kind == "dense", reversed(layers)))[::-1]
        return tail if len(tail) > (1 if self.depth == "auto" else 0) else layers


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


def _contrast(linear: Linear, parameter: str, values: Array, flows: Sequence[Flow]) -> Array:
    scores = np.zeros(values.shape, np.float32)
    for flow in flows:
        if parameter.startswith("bias"):
            continue  # what enters a bias is 1 for negatives and positives alike
        for rows in linear.blocks(values):
            scores[rows] += linear.gradient(parameter, flow, flow.gradient, rows).astype(np.float32)
    return np.asarray(np.abs(scores * values, dtype=np.float32))


def _contrasts(
    backend: ModelBackend, part: Part, positives: Array, layers: Sequence[LayerInfo]
) -> dict[str, list[Flow]]:
    """Of each use of each layer: ā_neg - ā_pos, and ḡ."""
    names = [info.name for info in layers]
    sides = {}
    for side, rows in (("negative", part.negatives), ("positive", positives)):
        sums = {info.name: _Means(backend, info) for info in layers}
        towards = _towards_the_mistake(part, rows) if side == "negative" else None
        _add_all(backend, take(part.data.inputs, rows), names, sums, towards)
        sides[side] = {name: own.means(max(1, len(rows))) for name, own in sums.items()}
    return {
        name: [_minus(*pair) for pair in _paired(sides["negative"][name], sides["positive"][name])] for name in names
    }


def _towards_the_mistake(part: Part, rows: Array) -> Array:
    """The seed of (score of the predicted class - score of the true class), float32 `(rows, classes)`."""
    seed = np.zeros((len(rows), part.n_classes), np.float32)
    each = np.arange(len(rows))
    seed[each, part.predictions[rows]] = 1
    seed[each, part.data.labels[rows]] = -1
    return seed


def _add_all(
    backend: ModelBackend, inputs: Inputs, names: Sequence[str], sums: dict[str, _Means], seed: Array | None
) -> None:
    """Batches that fit `HELD`; the first input goes alone and shows how much memory each takes."""
    n, done, size = count(inputs), 0, 1
    while done < n:
        rows = slice(done, done + size)
        trace = backend.trace(take(inputs, rows), names)
        gradients = None if seed is None else trace.output_gradients(seed[rows])
        for name, own in sums.items():
            own.add(trace, None if gradients is None else gradients[name])
        done += size
        size = max(1, HELD // max(1, bytes_held(trace))) if size == 1 else size


class _Means:
    """What enters each use of one layer, and the gradient at what leaves it, signed and summed over inputs."""

    def __init__(self, backend: ModelBackend, info: LayerInfo) -> None:
        self._layer = info.name
        self._linear: Linear = LINEAR[info.kind](info)
        self._weights = backend.get_weights(info.name) if info.kind == "norm" else {}
        self._entering: list[dict[str, Entering]] = []
        self._gradients: list[Array | None] = []
        self._transposed: list[bool] = []

    def add(self, trace: Trace, gradients: Sequence[Array] | None) -> None:
        """Some inputs, and perhaps the gradients at what leaves."""
        activations = trace.activations[self._layer]
        uses = [use for one in activations for use in self._linear.uses(one, self._weights)]
        for number, use in enumerate(uses):
            if number == len(self._entering):
                self._entering.append({})
                self._gradients.append(None)
                self._transposed.append(use.transposed)
            own = self._entering[number]
            for parameter in use.entering:
                own[parameter] = added(own.get(parameter), self._linear.total(parameter, use))
        if gradients is None:
            return
        pairs = zip(activations, gradients, strict=True)
        parts = [part for use, values in pairs for part in self._linear.outputs(use, values, self._weights)]
        for number, gradient in enumerate(parts):
            total = gradient.sum(axis=0, dtype=np.float64)
            self._gradients[number] = added(self._gradients[number], total)

    def means(self, n: int) -> list[Flow]:
        """The means over `n` inputs; without gradients, zeros in their place."""
        return [
            Flow(
                {name: total / n for name, total in entering.items()},
                np.zeros(()) if gradient is None else gradient / n,
                turned,
            )
            for entering, gradient, turned in zip(self._entering, self._gradients, self._transposed, strict=True)
        ]


def _paired(negative: list[Flow], positive: list[Flow]) -> list[tuple[Flow, Flow | None]]:
    return [(flow, positive[number] if number < len(positive) else None) for number, flow in enumerate(negative)]


def _minus(negative: Flow, positive: Flow | None) -> Flow:
    if positive is None:
        return negative
    entering = {name: added(values, -positive.entering[name]) for name, values in negative.entering.items()}
    return Flow(entering, negative.gradient, negative.transposed)
