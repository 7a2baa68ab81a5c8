"""Passes over a network spec: forward in the order of its nodes, backward in reverse."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from arachne.errors import DataError
from arachne.model.values import Array, Inputs
from arachne.testing.networks import Network
from arachne.testing.nodes import Node

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
    """Compute one node's value."""
    layer = network.layer_of(node)
    entering = [values[source] for source in node.sources]
    return node.forward(entering, {}) if layer is None else layer.forward(entering, weights[layer.name])


def nodes_behind(network: Network, layers: Collection[str]) -> list[Node]:
    """The nodes that use these layers, or depend on one that does, in order of execution."""
    found: dict[str, Node] = {}
    for node in network.nodes:
        layer = network.layer_of(node)
        if (layer is not None and layer.name in layers) or any(source in found for source in node.sources):
            found[node.name] = node
    return list(found.values())


def leaving_of(network: Network, node: Node, values: Values, weights: ByLayer) -> Array:
    """Return the outputs of the layer that a node uses; `values` holds its inputs, and may lack its own value."""
    layer = network.layer_of(node)
    output = values[node.name] if node.name in values else value_of(network, node, values, weights)
    if layer is None:
        return output
    return layer.leaving([values[source] for source in node.sources], output, weights[layer.name])


def run_back(
    network: Network, values: Values, seed: Array, weights: ByLayer, nodes: Sequence[Node] | None = None
) -> Values:
    """Gradient of the sum of seed × scores with respect to every value that these nodes take or give, by name.

    A value that several nodes take gets the sum of what they send back; one that does not reach the scores gets zeros.
    """
    gradients = {name: np.zeros_like(value) for name, value in values.items()}
    gradients[network.nodes[-1].name] = seed
    for node in reversed(network.nodes if nodes is None else nodes):
        layer = network.layer_of(node)
        formula, own = (node, {}) if layer is None else (layer, weights[layer.name])
        entering = [values[source] for source in node.sources]
        sent = formula.backward(gradients[node.name], entering, values[node.name], own)
        for source, gradient in zip(node.sources, sent, strict=True):
            gradients[source] = gradients[source] + gradient
    return gradients


def weight_gradients(
    network: Network, layers: Collection[str], values: Values, gradients: Values, weights: ByLayer
) -> dict[tuple[str, str], Array]:
    """The gradient with respect to every parameter of these layers, from what entered them and what came back."""
    total: dict[tuple[str, str], Array] = {}
    for node in network.nodes:
        layer = network.layer_of(node)
        if layer is None or layer.name not in layers:
            continue
        entering = [values[source] for source in node.sources]
        found = layer.weight_gradients(gradients[node.name], entering, weights[layer.name])
        for parameter, gradient in found.items():
            key = layer.name, parameter
            total[key] = total[key] + gradient if key in total else gradient
    return total


def check_inputs(network: Network, inputs: Inputs, dtype: np.dtype[Any]) -> Values:
    """Validate inputs and return them by name, as arrays of `dtype`.

    Raises:
        DataError: Another shape, dtype or set of names than the network takes.
    """
    expected = network.inputs
    if isinstance(inputs, Mapping):
        named = {name: np.asarray(values) for name, values in inputs.items()}
        if set(named) != set(expected):
            raise DataError(f"the model takes the inputs {quote(expected)}, got {quote(named)}")
    elif len(expected) > 1:
        raise DataError(f"the model takes a mapping with the inputs {quote(expected)}, got one array")
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


def quote(names: Iterable[str]) -> str:
    """Write names in quotes, with commas between."""
    return ", ".join(f"'{name}'" for name in names)
