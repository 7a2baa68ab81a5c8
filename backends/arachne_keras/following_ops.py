"""Names for the operations between a layer and the next one (`LayerInfo.followed_by`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import keras
from keras import layers as kl

from arachne_keras.graph import Graph, OpCall
from arachne_keras.kinds import Layer
from arachne_keras.output_head import kind_of_step, passes

NAMES: Mapping[type, str] = {
    kl.ReLU: "relu",
    kl.Flatten: "flatten",
    kl.MaxPooling1D: "max_pool",
    kl.MaxPooling2D: "max_pool",
    kl.MaxPooling3D: "max_pool",
    kl.AveragePooling1D: "average_pool",
    kl.AveragePooling2D: "average_pool",
    kl.AveragePooling3D: "average_pool",
    kl.GlobalMaxPooling1D: "global_max_pool",
    kl.GlobalMaxPooling2D: "global_max_pool",
    kl.GlobalMaxPooling3D: "global_max_pool",
    kl.GlobalAveragePooling1D: "global_average_pool",
    kl.GlobalAveragePooling2D: "global_average_pool",
    kl.GlobalAveragePooling3D: "global_average_pool",
    kl.ZeroPadding1D: "zero_pad",
    kl.ZeroPadding2D: "zero_pad",
    kl.ZeroPadding3D: "zero_pad",
}
"""Layers without weights, by the name the engine knows."""


def followed_by(graph: Graph, layer: Layer, users: Mapping[str, Sequence[int]], head: str) -> tuple[str, ...] | None:
    """Name the operations from a layer to the next or to the scores; None at a fork, a join or an unknown operation.

    The scores of a single sigmoid output, and of probabilities, have no name: None.

    Canonical outputs have their channels first. Keras flattens them last, so a flatten behind positions is called
    `flatten_last`.
    """
    steps = users[layer.name]
    if len(steps) != 1 or layer.kind.name not in ("dense", "conv") or layer.part == "depthwise":
        return None
    step = graph.steps[steps[0]]
    if step.operation is not layer.kind.keras:
        return None
    fused = "linear" if step.bare else _activation(step.operation.activation)
    if fused is None:
        return None
    path = [] if fused == "linear" else [fused]
    positions = len(graph.shapes[step.gives[0]]) > 2
    while True:
        if step.gives[0] == graph.output:
            return tuple(path) if head in ("softmax", "logits") else None
        takers = graph.takers(step.gives[0])
        if len(takers) != 1 or len(takers[0].takes) != 1 or len(takers[0].gives) != 1:
            return None
        step = takers[0]
        if kind_of_step(step):
            return tuple(path)
        name = "" if step.bare or passes(step.operation) else op_name(step)
        if name is None:
            return None
        if name == "flatten" and positions:
            name = "flatten_last"
        if name:
            path.append(name)


def _activation(function: Any) -> str | None:
    """The name of one of Keras' own functions; None for another function, even of the same name."""
    name = str(getattr(function, "__name__", ""))
    return name if getattr(keras.activations, name, None) is function else None


def op_name(step: OpCall) -> str | None:
    """Name a step without weights; None for a step without a name."""
    operation = step.operation
    if isinstance(operation, kl.Activation):
        return _activation(operation.activation)
    if type(operation) is kl.ReLU:
        plain = not operation.negative_slope and not operation.threshold and operation.max_value is None
        return "relu" if plain else None
    if not isinstance(operation, keras.Layer):
        name = type(operation).__name__.lower()
        return name if name in ("relu", "tanh", "sigmoid") else None
    return NAMES.get(type(operation))
