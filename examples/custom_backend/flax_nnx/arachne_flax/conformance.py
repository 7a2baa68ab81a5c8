"""The conformance suite for this backend: how a network of the suite is built in Flax. It needs pytest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from flax import nnx

from arachne.model.backend import ModelBackend
from arachne.testing import BackendConformance, Network, UnsupportedNetworkError
from arachne.testing.checks.suite import MakeBackend
from arachne.testing.nodes import (
    Add,
    AveragePool,
    BatchNorm,
    Concat,
    Conv,
    Dense,
    Embedding,
    Flatten,
    Layer,
    LayerNorm,
    MaxPool,
    Node,
    Pool,
    Relu,
    Reuse,
    Sigmoid,
    Softmax,
    Tanh,
)
from arachne_flax.adapter import FlaxBackend
from arachne_flax.layers import KINDS, parameters_of, to_stored

PLAIN = {
    Relu: jax.nn.relu,
    Tanh: jnp.tanh,
    Sigmoid: jax.nn.sigmoid,
    Softmax: jax.nn.softmax,
    Add: lambda *values: sum(values),
    Concat: lambda *values: jnp.concatenate(values, axis=-1),
}


class FlaxConformance(BackendConformance):
    """The conformance suite; networks that `build` refuses are skipped with its reason."""

    @pytest.fixture
    def make_backend(self) -> MakeBackend:
        """Return the function that builds a backend from a network."""
        return build

    def reload(self, path: Path, backend: ModelBackend, network: Network) -> ModelBackend:
        """Build the model again, since a file holds weights alone."""
        return FlaxBackend.load(Graph(network), weights=path)


def build(network: Network) -> FlaxBackend:
    """The network of a spec, with exactly its weights."""
    model = Graph(network)
    for name, layer in network.layers.items():
        own = getattr(model, name)
        kind = KINDS[type(own)]
        for parameter, variable in parameters_of(own, kind).items():
            variable[...] = to_stored(kind, parameter, jnp.asarray(layer.parameters[parameter]))
    return FlaxBackend(model)


class Graph(nnx.Module):
    """A network spec as a Flax model. Inputs come as the suite has them, with the channels of images second."""

    def __init__(self, network: Network) -> None:
        self.inputs = tuple(network.inputs)
        images = {name for node in network.nodes if _reads_images(network, node) for name in node.sources}
        self.images = tuple(name for name in self.inputs if name in images)
        channels_last, steps = set(self.images), []
        for node in network.nodes:
            of_images = not channels_last.isdisjoint(node.sources)
            if of_images and not isinstance(node, Flatten):
                channels_last.add(node.name)
            steps.append((node.name, node.sources, _step(node, of_images)))
        self.steps = tuple(steps)
        for name, layer in network.layers.items():
            setattr(self, name, _layer(layer))

    def __call__(self, value: Any = None, **named: Any) -> Any:
        """The value of the last node."""
        values = dict(named) or {self.inputs[0]: value}
        for name in self.images:
            values[name] = jnp.moveaxis(values[name], 1, -1)
        for name, sources, (what, how) in self.steps:
            given = [values[source] for source in sources]
            values[name] = getattr(self, how)(*given) if what == "layer" else _plain(what, how, given)
        return values[self.steps[-1][0]]


def _reads_images(network: Network, node: Node) -> bool:
    return isinstance(network.layer_of(node) or node, (Conv, BatchNorm, Pool))


def _step(node: Node, of_images: bool) -> tuple[Any, Any]:
    """Describe a node by comparable values: models of one structure share compiled functions."""
    if isinstance(node, (Layer, Reuse)):
        return "layer", node.layer if isinstance(node, Reuse) else node.name
    if isinstance(node, Pool):
        return type(node), (node.geometry.stride, tuple(node.size))
    if isinstance(node, Flatten):
        return Flatten, of_images
    if type(node) in PLAIN:
        return type(node), None
    raise UnsupportedNetworkError(f"no {type(node).__name__} yet")


def _plain(what: Any, how: Any, given: list[Any]) -> Any:
    if what is Flatten:
        value = jnp.moveaxis(given[0], -1, 1) if how else given[0]
        return value.reshape(len(value), -1)
    if what in (MaxPool, AveragePool):
        stride, size = how
        pool = nnx.max_pool if what is MaxPool else nnx.avg_pool
        return pool(given[0], size, stride)
    return PLAIN[what](*given)


def _layer(layer: Layer) -> nnx.Module:
    """Make Flax' layer for a node, with random weights."""
    rngs = nnx.Rngs(0)
    if isinstance(layer, Dense):
        return nnx.Linear(*layer.weight.shape[::-1], use_bias=layer.bias is not None, rngs=rngs)
    if isinstance(layer, Conv):
        walk, (n_out, n_in, *window) = layer.geometry, layer.weight.shape
        return nnx.Conv(
            n_in * walk.groups, n_out, tuple(window), strides=walk.stride, padding=walk.padding,
            kernel_dilation=walk.dilation, feature_group_count=walk.groups, use_bias=layer.bias is not None, rngs=rngs,
        )  # fmt: skip
    if isinstance(layer, Embedding):
        return nnx.Embed(*layer.weight.shape, rngs=rngs)
    if isinstance(layer, BatchNorm):
        norm = nnx.BatchNorm(len(layer.scale), epsilon=layer.epsilon, rngs=rngs)
        norm.mean[...], norm.var[...] = jnp.asarray(layer.mean), jnp.asarray(layer.variance)
        return norm
    if isinstance(layer, LayerNorm):
        return nnx.LayerNorm(len(layer.scale), epsilon=layer.epsilon, use_fast_variance=False, rngs=rngs)
    raise UnsupportedNetworkError(f"no {type(layer).__name__} yet")
