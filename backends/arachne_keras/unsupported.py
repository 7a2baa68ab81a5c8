"""Why some of a model's parameters cannot be repaired, in sentences that a user can act on."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import keras

from arachne_keras.graph import OpCall
from arachne_keras.kinds import Layer
from arachne_keras.layers import KINDS, kind_of

LORA = "its layer is adapted by LoRA, so the weight that is used is computed, not stored"
QUANTISED = "its layer is quantised, and only floating-point weights are repaired; quantise after the repair"
UNUSED = "the scores do not depend on it"


def unreached_parameters(model: Any, layers: Mapping[str, Layer], steps: Sequence[OpCall]) -> dict[str, str]:
    """The reason for every trainable variable that belongs to no layer, by the variable's path inside the model.

    Args:
        model: The Keras model.
        layers: Its repairable layers.
        steps: The steps that make its scores.
    """
    reached = {id(stored.variable) for layer in layers.values() for stored in layer.stored.values()}
    operations = [step.operation for step in steps if isinstance(step.operation, keras.Layer)]
    used = {id(inner) for operation in operations for inner in operation._flatten_layers()}
    return {name: _reason(layer, used) for name, layer, variable in _variables(model) if id(variable) not in reached}


def variable_sizes(model: Any) -> dict[str, int]:
    """How many numbers each trainable variable holds, by its path inside the model."""
    return {name: math.prod(variable.shape) for name, _, variable in _variables(model)}


def _variables(model: Any) -> Iterator[tuple[str, Any, Any]]:
    """Every trainable variable: its path inside the model, its layer, itself."""
    for layer in model._flatten_layers():
        for variable in layer._trainable_variables:
            yield variable.path.removeprefix(f"{model.name}/"), layer, variable


def _reason(layer: Any, used: Collection[int]) -> str:
    name = type(layer).__name__
    if id(layer) not in used:
        return UNUSED
    if getattr(layer, "quantization_mode", None):
        return QUANTISED
    if getattr(layer, "lora_enabled", False):
        return LORA
    if kind_of(layer) is not None:
        return "no pass of the model has used its layer"
    own = [known for known in KINDS if isinstance(layer, known)]
    if own and type(layer) is own[0]:
        return f"its '{name}' is of a form that Arachne does not know"
    if own:
        return f"its layer '{name}' has a call of its own, so what it does with the weight is not known"
    return f"it is used by '{name}', which is no layer Arachne knows"
