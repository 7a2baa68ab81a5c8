"""The output head: find the input of a final softmax or sigmoid, and turn it into class scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import keras
from keras import layers as kl
from keras import ops

from arachne.adapting.outputs import SMALLEST_PROBABILITY
from arachne.errors import ModelError
from arachne_keras.graph import Graph, OpCall, WholeModelCall
from arachne_keras.layers import kind_of

ACTIVATIONS = {
    keras.activations.softmax: "softmax",
    keras.activations.log_softmax: "softmax",
    keras.activations.sigmoid: "sigmoid",
}
"""Activations whose inputs are logits."""

OPERATIONS = {"Softmax": "softmax", "LogSoftmax": "softmax", "Sigmoid": "sigmoid"}
"""Operations with the same effect, by class name."""

PASSING = (
    kl.Dropout,
    kl.SpatialDropout1D,
    kl.SpatialDropout2D,
    kl.SpatialDropout3D,
    kl.GaussianDropout,
    kl.GaussianNoise,
    kl.AlphaDropout,
    kl.ActivityRegularization,
    kl.Identity,
)
"""Layers that change nothing outside training."""


def find_output_head(graph: Graph) -> str:
    """Cut a final softmax or sigmoid off the graph, if it has one.

    Returns:
        `softmax` or `sigmoid`: the graph now ends before it. `logits`: the last layer has no activation.
        Empty: unknown; the outputs have to be examined.
    """
    slot = graph.output
    while True:
        step = graph.giver(slot)
        if step is None or isinstance(step, WholeModelCall) or len(step.gives) != 1:
            return ""
        operation = step.operation
        if passes(operation) and len(step.takes) == 1:
            slot = next(iter(step.takes.values()))
            continue
        found = ACTIVATIONS.get(getattr(operation, "activation", None))
        if found is not None and len(graph.takers(slot)) <= 1 and _used_once(graph, operation):
            graph.steps[graph.steps.index(step)] = replace(step, bare=True)
            graph.output = slot
            return found
        found = "softmax" if isinstance(operation, kl.Softmax) else _operation(operation)
        if found and len(step.takes) == 1:
            graph.output = next(iter(step.takes.values()))
            graph.steps = select_needed(graph)
            return found
        fused = getattr(operation, "activation", None)
        return "logits" if kind_of_step(step) and fused in (None, keras.activations.linear) else ""


def kind_of_step(step: OpCall) -> bool:
    """Whether a step is a layer with weights."""
    return isinstance(step.operation, keras.Layer) and kind_of(step.operation) is not None


def without_activation(layer: Any) -> tuple[Mapping[tuple[Any, str], Any], str]:
    """Return replacements that switch off a layer's softmax or sigmoid, and its name; empty for other layers."""
    if isinstance(layer, kl.Softmax):
        return {(layer, "call"): lambda inputs, mask=None: inputs}, "softmax"
    found = ACTIVATIONS.get(getattr(layer, "activation", None))
    return ({(layer, "activation"): keras.activations.linear}, found) if found else ({}, "")


def passes(operation: Any) -> bool:
    """Whether an operation returns its input unchanged."""
    linear = isinstance(operation, kl.Activation) and operation.activation is keras.activations.linear
    return linear or isinstance(operation, PASSING)


def select_needed(graph: Graph) -> list[OpCall]:
    """Select the steps that the output depends on."""
    wanted, kept = {graph.output}, []
    for step in reversed(graph.steps):
        if wanted & set(step.gives):
            kept.append(step)
            wanted |= set(step.takes.values())
    return kept[::-1]


def check_output_head(shape: tuple[int | None, ...], head: str) -> str:
    """Return the name of the output head: `sigmoids` for one of several outputs, each by itself.

    Raises:
        ModelError: There is not one row of numbers for each input.
    """
    if not shape:
        raise ModelError("the model gives a single number, not one row of numbers for each input")
    return "sigmoids" if head == "sigmoid" and shape[1:] != (1,) else head


def finish(output: Any, head: str) -> Any:
    """Turn the graph's output into class scores, float32."""
    output = ops.cast(output, "float32")
    if head == "sigmoid":
        return ops.concatenate([ops.zeros_like(output), output], axis=1)
    return ops.log(ops.maximum(output, SMALLEST_PROBABILITY)) if head == "probabilities" else output


def _operation(operation: Any) -> str:
    if isinstance(operation, keras.Layer) or getattr(operation, "axis", -1) not in (-1, 1):
        return ""
    return OPERATIONS.get(type(operation).__name__, "")


def _used_once(graph: Graph, operation: Any) -> bool:
    return sum(step.operation is operation for step in graph.steps) == 1
