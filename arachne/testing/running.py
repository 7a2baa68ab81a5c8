"""Passes over a network spec: forward in the order of its nodes, backward in reverse."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from arachne.errors import DataError
from arachne.testing.networks import Network
from arachne.testing.nodes import Node
from arachne.values import Array, Inputs

Values = dict[str, Array]
"""Inputs and nodes by name."""

ByLayer = dict[str, Mapping[str, Array]]
"""Parameters by layer."""


def run(network: Network, nodes: Iterable[Node], values: Values, weights: ByLayer) -> Values:
    """Compute these nodes on top of the values that are known; gives all of them."""
    values = dict(values)
    for node in nodes:
        values[node.name] = value_of(network, node, values, weights)
    return values


def value_of(network: Network, node: Node, values: Values, weights: ByLayer) -> Array:
    """One node's value."""
    layer = network.layer_of(node)
    entering = [values[source] for source in node.sources]
    return node.forward(entering, {}) if layer is None else layer.forward(entering, weights[layer.name])


def run_back(network: Network, values: Values, seed: Array, weights: ByLayer) -> Values:
    """Gradient of the sum of seed × scores with respect to every value, by name.

    A value that several nodes take gets the sum of what they send back; one that does not reach the scores gets zeros.
    """
    gradients = {name: np.zeros_like(value) for name, value in values.items()}
    gradients[network.nodes[-1].name] = seed
    for node in reversed(network.nodes):
        layer = network.layer_of(node)
        formula, own = (node, {}) if layer is None else (layer, weights[layer.name])
        entering = [values[source] for source in node.sources]
        sent = formula.backward(gradients[node.name], entering, values[node.name], own)
        for source, gradient in zip(node.sources, sent, strict=True):
            gradients[source] = gradients[source] + gradient
    return gradients


def checked_inputs(network: Network, inputs: Inputs, dtype: np.dtype[Any]) -> Values:
    """Inputs by name, as arrays of `dtype`.

    Raises:
        DataError: Another shape, dtype or set of names than the network takes.
    """
    expected = network.inputs
    if isinstance(inputs, Mapping):
        named = {name: np.asarray(values) for name, values in inputs.items()}
        if set(named) != set(expected):
            raise DataError(f"the model takes the inputs {quoted(expected)}, got {quoted(named)}")
    elif len(expected) > 1:
        raise DataError(f"the model takes a mapping with the inputs {quoted(expected)}, got one array")
    else:
        named = {name: np.asarray(inputs) for name in expected}
    for name, shape in expected.items():
        array = named[name]
        if array.ndim == 0 or array.shape[1:] != tuple(shape):
            wanted = ", ".join(map(str, ("n", *shape)))
            raise DataError(f"input '{name}' should be of shape ({wanted}), got {array.shape}")
        if array.dtype.kind not in "biuf":
            raise DataError(f"input '{name}' should hold numbers, got {array.dtype}")
    lengths = {name: len(array) for name, array in named.items()}
    if len(set(lengths.values())) > 1:
        raise DataError(f"the model's inputs should be equally many, got {lengths}")
    return {name: array.astype(dtype, copy=False) for name, array in named.items()}


def quoted(names: Iterable[str]) -> str:
    """Names in quotes, with commas between."""
    return ", ".join(f"'{name}'" for name in names)
