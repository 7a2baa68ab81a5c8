"""What flows through layers when the fault happens and when it does not, and the contrast of the two."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from arachne.backend import ModelBackend
from arachne.data.split import Part
from arachne.localise.averages import Averages
from arachne.localise.linear_maps import LINEAR, Flow, Linear
from arachne.memory import give_back
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
    differences = _differences(backend, part, positives, [info for info, _ in parameters])
    found: dict[tuple[str, str], Array] = {}
    for info, names in parameters:
        weights, linear, flows = backend.get_weights(info.name), LINEAR[info.kind](info), differences.take(info.name)
        for parameter in names:
            found[info.name, parameter] = _contrast(linear, parameter, weights[parameter], flows)
    return found


def _contrast(linear: Linear, parameter: str, values: Array, flows: Sequence[Flow]) -> Array:
    """The contrast of one parameter, in the memory of `values` where these are float32."""
    values = values.astype(np.float32, copy=False)
    if parameter.startswith("bias"):  # what enters a bias is 1 for negatives and positives alike
        flows = ()
    for rows in linear.blocks(values):
        scores = np.zeros(values[rows].shape, np.float32)
        for flow in flows:
            scores += linear.gradient(parameter, flow, flow.gradient, rows).astype(np.float32)
        np.abs(np.multiply(scores, values[rows], out=scores), out=values[rows])
    return values


def _differences(backend: ModelBackend, part: Part, positives: Array, layers: Sequence[LayerInfo]) -> Averages:
    """Of each use of each layer: ā_neg - ā_pos, and ḡ."""
    names, towards = [info.name for info in layers], _towards_the_mistake(part, part.negatives)
    averages = Averages(backend, layers, magnitudes=False)
    negatives = averages.counting(1 / len(part.negatives))
    part.observe(backend, part.negatives, names, negatives, lambda rows: [towards[rows]])
    if len(positives):
        part.observe(backend, positives, names, averages.counting(-1 / len(positives)))
    give_back()
    return averages


def _towards_the_mistake(part: Part, rows: Array) -> Array:
    """The seed of (score of the predicted class - score of the true class), float32 `(rows, classes)`."""
    seed = np.zeros((len(rows), part.n_classes), np.float32)
    each = np.arange(len(rows))
    seed[each, part.predictions[rows]] = 1
    seed[each, part.data.labels[rows]] = -1
    return seed
