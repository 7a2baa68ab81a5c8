"""The activations of layers when the fault happens and when it does not, and the contrast of the two."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from arachne.data.part import Part
from arachne.localise.averages import Averages
from arachne.localise.linear_maps import LINEAR, Flow, Linear
from arachne.localise.observe import observe_part
from arachne.model.backend import ModelBackend
from arachne.model.memory import release_freed_memory
from arachne.model.values import Array, LayerInfo, Weights

MAX_NEGATIVES = 2000
"""Negatives that are observed where inputs have several decisions: the model runs on the input of each of them."""


def contrasts(
    backend: ModelBackend, part: Part, positives: Array, parameters: Sequence[tuple[LayerInfo, Sequence[str]]]
) -> Weights:
    """Compute the contrast of every weight of these parameters, float32, by `(layer, parameter)`.

    Args:
        backend: The model.
        part: The inputs; all negatives are used, and where inputs have several decisions a sample of very many.
        positives: The rows of the positives that they are compared with.
        parameters: The layers, and the parameters of each.
    """
    differences = _differences(backend, part, positives, [info for info, _ in parameters])
    found: dict[tuple[str, str], Array] = {}
    for info, names in parameters:
        weights, linear, flows = backend.get_weights(info.name), LINEAR[info.kind](info), differences.take(info.name)
        for parameter in names:
            found[info.name, parameter] = _contrast(linear, parameter, weights[parameter], flows)
    return found


def _contrast(linear: Linear, parameter: str, values: Array, flows: Sequence[Flow]) -> Array:
    """Compute the contrast of one parameter, in place if `values` are float32."""
    values = values.astype(np.float32, copy=False)
    if parameter.startswith("bias"):  # the input of a bias is 1 for negatives and positives alike
        flows = ()
    for rows in linear.blocks(values):
        scores = np.zeros(values[rows].shape, np.float32)
        for flow in flows:
            scores += linear.gradient(parameter, flow, flow.gradient, rows).astype(np.float32)
        np.abs(np.multiply(scores, values[rows], out=scores), out=values[rows])
    return values


def _differences(backend: ModelBackend, part: Part, positives: Array, layers: Sequence[LayerInfo]) -> Averages:
    """Return ā_neg - ā_pos and ḡ of each use of each layer."""
    shown = part.sample_decisions(part.negatives, MAX_NEGATIVES)
    names, towards = [info.name for info in layers], _towards_the_mistake(part, shown)
    averages = Averages(backend, layers, magnitudes=False)
    negatives = averages.weigh(1 / len(shown))
    observe_part(backend, part, shown, names, negatives, lambda rows: [towards[rows]])
    if len(positives):
        observe_part(backend, part, positives, names, averages.weigh(-1 / len(positives)))
    release_freed_memory()
    return averages


def _towards_the_mistake(part: Part, rows: Array) -> Array:
    """Return the seed of (score of the predicted class - score of the true class), float32 `(rows, classes)`."""
    seed = np.zeros((len(rows), part.n_classes), np.float32)
    each = np.arange(len(rows))
    seed[each, part.predictions[rows]] = 1
    seed[each, part.labels[rows]] = -1
    return seed
