"""The conformance suite on this backend: network specs as Keras models, channels last. It needs pytest.

Inputs come channels first, so a model begins by turning images, and turns them back before it flattens: the columns of
the dense layer behind a flatten are then those of the spec.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from arachne_keras import KerasBackend  # isort: skip  # before Keras: it settles what Keras runs on
import keras
import numpy as np
import pytest
from keras import layers as kl

from arachne.testing import BackendConformance, Network, UnsupportedNetworkError
from arachne.testing import nodes as spec
from arachne.testing.checks.suite import MakeBackend

CONVS = {1: kl.Conv1D, 2: kl.Conv2D, 3: kl.Conv3D}
TRANSPOSED = {1: kl.Conv1DTranspose, 2: kl.Conv2DTranspose, 3: kl.Conv3DTranspose}
DEPTHWISE = {1: kl.DepthwiseConv1D, 2: kl.DepthwiseConv2D}
PADS = {1: kl.ZeroPadding1D, 2: kl.ZeroPadding2D, 3: kl.ZeroPadding3D}
MAX_POOLS = {1: kl.MaxPooling1D, 2: kl.MaxPooling2D, 3: kl.MaxPooling3D}
AVERAGE_POOLS = {1: kl.AveragePooling1D, 2: kl.AveragePooling2D, 3: kl.AveragePooling3D}
ACTIVATIONS = {spec.Relu: "relu", spec.Tanh: "tanh", spec.Sigmoid: "sigmoid", spec.Softmax: "softmax"}


class KerasConformance(BackendConformance):
    """The suite, for `arachne backends --check keras` and for our own tests."""

    UNSUPPORTED = {  # noqa: RUF012
        "conv2d": "Keras refuses a stride together with a dilation",
        "conv_transpose2d": "Keras has no groups in transposed convolutions, and pads them by the word 'same' alone",
        "lstm_two_biases": "Keras stores one bias in an LSTM",
    }

    @pytest.fixture
    def make_backend(self) -> MakeBackend:
        """The backend under test."""
        return build


def build(network: Network) -> KerasBackend:
    """The network of a spec, with exactly its weights."""
    return KerasBackend.load(model_of(network))


def model_of(network: Network) -> Any:
    """A functional model."""
    inputs = {
        name: keras.Input(tuple(shape), name=name, dtype="int64" if network.rows_read(name) else None)
        for name, shape in network.inputs.items()
    }
    values: dict[str, Any] = {}
    for name, tensor in inputs.items():
        images = any(
            name in node.sources and isinstance(network.layer_of(node), (spec.Sliding, spec.BatchNorm))
            for node in network.nodes
        )
        values[name] = channels_last(tensor) if images else tensor
    made: dict[str, Any] = {}
    for node in network.nodes:
        given = [values[source] for source in node.sources]
        owner = network.layer_of(node)
        if owner is not None:
            if owner.name not in made:
                made[owner.name] = layer_of(owner)
            values[node.name] = apply_layer(owner, made[owner.name], given[0])
        else:
            values[node.name] = plain(node, given)
    model = keras.Model(inputs if len(inputs) > 1 else next(iter(inputs.values())), values[network.nodes[-1].name])
    for name, owner in network.layers.items():
        made[name].set_weights(keras_weights(owner))
    return model


def layer_of(owner: spec.Layer) -> Any:
    """The Keras layer of a node with weights."""
    bias = bool({"bias", "bias_ih"} & owner.parameters.keys())
    match owner:
        case spec.Dense():
            return kl.Dense(owner.weight.shape[0], use_bias=bias, name=owner.name)
        case spec.Conv() | spec.ConvTranspose():
            return convolution(owner)
        case spec.Embedding():
            return kl.Embedding(*owner.weight.shape, name=owner.name)
        case spec.BatchNorm():
            return kl.BatchNormalization(epsilon=owner.epsilon, name=owner.name)
        case spec.LayerNorm():
            return kl.LayerNormalization(epsilon=owner.epsilon, name=owner.name)
        case spec.Lstm() | spec.Gru():
            make = kl.LSTM if isinstance(owner, spec.Lstm) else kl.GRU
            return make(owner.units, use_bias=bias, return_sequences=True, name=owner.name)
    raise UnsupportedNetworkError(f"no {type(owner).__name__} in Keras")


def convolution(owner: spec.Conv | spec.ConvTranspose) -> Any:
    """Build a convolution with the Keras class for its kind."""
    bias = owner.bias is not None
    geometry, (out, per_group, *kernel) = owner.geometry, owner.weight.shape
    shared = {"strides": geometry.stride, "dilation_rate": geometry.dilation, "use_bias": bias, "name": owner.name}
    if isinstance(owner, spec.ConvTranspose):
        return TRANSPOSED[len(kernel)](per_group, tuple(kernel), **shared)
    if depthwise(owner):
        return DEPTHWISE[len(kernel)](tuple(kernel), depth_multiplier=out // geometry.groups, **shared)
    return CONVS[len(kernel)](out, tuple(kernel), groups=geometry.groups, **shared)


def apply_layer(owner: spec.Layer, layer: Any, given: Any) -> Any:
    """Apply a layer to a value, after the padding of its spec."""
    if not isinstance(owner, spec.Conv) or not any(map(any, owner.geometry.padding)):
        return layer(given)
    padding = owner.geometry.padding
    return layer(PADS[len(padding)](padding if len(padding) > 1 else padding[0])(given))


def keras_weights(owner: spec.Layer) -> list[Any]:
    """Return the weights in Keras' layout."""
    parameters = dict(owner.parameters)
    match owner:
        case spec.Dense():
            parameters["weight"] = owner.weight.T
        case spec.Conv() if depthwise(owner):
            each = owner.weight[:, 0].reshape(owner.geometry.groups, -1, *owner.weight.shape[2:])
            parameters["weight"] = np.moveaxis(each, (0, 1), (-2, -1))
        case spec.Conv() | spec.ConvTranspose():
            parameters["weight"] = np.moveaxis(owner.weight, (0, 1), (-1, -2))
        case spec.BatchNorm():
            parameters |= {"mean": owner.mean, "variance": owner.variance}
        case spec.Lstm():
            parameters |= {"weight_ih": owner.weight_ih.T, "weight_hh": owner.weight_hh.T}
        case spec.Gru():  # Keras stores z r n, and the two biases as rows of one
            r, z, n = ({name: np.split(values, 3)[gate] for name, values in parameters.items()} for gate in range(3))
            turned_gates = {name: np.concatenate([z[name], r[name], n[name]]).T for name in parameters}
            biases = np.stack([turned_gates.pop("bias_ih"), turned_gates.pop("bias_hh")])
            parameters = {**turned_gates, "bias": biases}
    return list(parameters.values())


def depthwise(owner: spec.Conv) -> bool:
    """Whether Keras has a depthwise class for it: one group per channel, over up to two axes."""
    return owner.weight.shape[1] == 1 and owner.geometry.groups > 1 and owner.weight.ndim < 5


def plain(node: spec.Node, given: Sequence[Any]) -> Any:
    """A node without weights."""
    if type(node) in ACTIVATIONS:
        return kl.Activation(ACTIVATIONS[type(node)], name=node.name)(given[0])
    if isinstance(node, spec.Pool):
        pools = MAX_POOLS if isinstance(node, spec.MaxPool) else AVERAGE_POOLS
        return pools[len(node.size)](node.size, strides=node.stride or node.size, name=node.name)(given[0])
    if isinstance(node, spec.Flatten):
        images = len(given[0].shape) > 2 and not isinstance(given[0]._keras_history.operation, (kl.Dense,))
        return kl.Flatten(name=node.name)(channels_first(given[0]) if images and conv_before(given[0]) else given[0])
    if isinstance(node, spec.Add):
        return kl.Add(name=node.name)(list(given))
    if isinstance(node, spec.Concat):
        return kl.Concatenate(axis=-1, name=node.name)(list(given))
    raise UnsupportedNetworkError(f"no {type(node).__name__} in Keras")


def conv_before(tensor: Any) -> bool:
    """Whether a value comes out of a convolution, so that its channels are last."""
    while True:
        operation, number, _ = tensor._keras_history
        if isinstance(operation, (*CONVS.values(), *DEPTHWISE.values(), *TRANSPOSED.values(), kl.BatchNormalization)):
            return True
        given = operation._inbound_nodes[number].input_tensors
        if not given or isinstance(operation, kl.Dense):
            return False
        tensor = given[0]


def channels_last(tensor: Any) -> Any:
    """Move the channels to the last axis."""
    axes = len(tensor.shape) - 1
    return kl.Permute((*range(2, axes + 1), 1))(tensor)


def channels_first(tensor: Any) -> Any:
    """Move the channels to axis 1."""
    axes = len(tensor.shape) - 1
    return kl.Permute((axes, *range(1, axes)))(tensor)
