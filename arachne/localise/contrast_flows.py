"""What flows through layers when the fault happens and when it does not, and the contrast of the two."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from arachne.backend import ModelBackend, Trace
from arachne.data.split import Part
from arachne.localise.impact import HELD, added, bytes_held
from arachne.localise.linear_maps import LINEAR, Entering, Flow, Linear
from arachne.values import Array, LayerInfo, Weights


def contrasts(
    backend: ModelBackend, part: Part, positives: Array, parameters: Sequence[tuple[LayerInfo, Sequence[str]]]
) -> Weights:
    """The contrast of every weight of these parameters, float32, by `(layer, parameter)`.

    Args:
        backend: The model.
        part: The inputs; all its negatives are looked at.
        positives: The rows of the positives that they are compared with.
        parameters: The layers, and which of their parameters to look at.
    """
    flows = _differences(backend, part, positives, [info for info, _ in parameters])
    found: dict[tuple[str, str], Array] = {}
    for info, names in parameters:
        weights, linear = backend.get_weights(info.name), LINEAR[info.kind](info)
        for parameter in names:
            found[info.name, parameter] = _contrast(linear, parameter, weights[parameter], flows[info.name])
    return found


def _contrast(linear: Linear, parameter: str, values: Array, flows: Sequence[Flow]) -> Array:
    scores = np.zeros(values.shape, np.float32)
    for flow in flows:
        if parameter.startswith("bias"):
            continue  # what enters a bias is 1 for negatives and positives alike
        for rows in linear.blocks(values):
            scores[rows] += linear.gradient(parameter, flow, flow.gradient, rows).astype(np.float32)
    return np.asarray(np.abs(scores * values, dtype=np.float32))


def _differences(
    backend: ModelBackend, part: Part, positives: Array, layers: Sequence[LayerInfo]
) -> dict[str, list[Flow]]:
    """Of each use of each layer: ā_neg - ā_pos, and ḡ."""
    names = [info.name for info in layers]
    sides = {}
    for side, rows in (("negative", part.negatives), ("positive", positives)):
        sums = {info.name: _Means(backend, info) for info in layers}
        towards = _towards_the_mistake(part, rows) if side == "negative" else None
        _add_all(backend, part, rows, names, sums, towards)
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
    backend: ModelBackend, part: Part, rows: Array, names: Sequence[str], sums: dict[str, _Means], seed: Array | None
) -> None:
    """Batches that fit `HELD`; the first input goes alone and shows how much memory each takes."""
    n, done, size = len(rows), 0, 1
    while done < n:
        block = slice(done, done + size)
        trace = part.trace(backend, rows[block], names)
        gradients = None if seed is None else trace.output_gradients(seed[block])
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
