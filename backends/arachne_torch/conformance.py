"""The conformance suite on this backend: network specs as PyTorch modules. It needs pytest."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from arachne.model.backend import ModelBackend
from arachne.model.values import Array
from arachne.testing import BackendConformance, Network, UnsupportedNetworkError, nodes
from arachne.testing.checks.suite import MakeBackend
from arachne_torch import TorchBackend

Make = Callable[..., nn.Module]

CONVOLUTIONS: dict[type[nodes.Node], tuple[Make, ...]] = {
    nodes.Conv: (nn.Conv1d, nn.Conv2d, nn.Conv3d),
    nodes.ConvTranspose: (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d),
}
RECURRENT: dict[type[nodes.Node], Make] = {nodes.Lstm: nn.LSTM, nodes.Gru: nn.GRU}
POOLS: dict[type[nodes.Node], tuple[Make, ...]] = {
    nodes.MaxPool: (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d),
    nodes.AveragePool: (nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d),
}
PLAIN: dict[type[nodes.Node], Make] = {
    nodes.Relu: nn.ReLU,
    nodes.Tanh: nn.Tanh,
    nodes.Sigmoid: nn.Sigmoid,
    nodes.Softmax: functools.partial(nn.Softmax, dim=-1),
    nodes.Flatten: nn.Flatten,
}


class TorchConformance(BackendConformance):
    """The suite, for `arachne backends --check torch` and for our own tests."""

    UNSUPPORTED = {"lstm_one_bias": "PyTorch stores two biases or none"}  # noqa: RUF012

    @pytest.fixture
    def make_backend(self) -> MakeBackend:
        """The backend under test."""
        return build

    def reload(self, path: Path, backend: ModelBackend, network: Network) -> TorchBackend:
        """A state dict back into a model, through a factory whose own weights are all zero."""
        factory = ModuleType("torch_networks_factory")
        factory.make = lambda: _zero_weights(SpecModule(network))  # type: ignore[attr-defined]  # a module made on the spot
        sys.modules[factory.__name__] = factory
        return TorchBackend.load(f"{factory.__name__}:make", weights=path)


def build(network: Network) -> TorchBackend:
    """The network of a spec, with exactly its weights."""
    return TorchBackend.load(SpecModule(network))


class SpecModule(nn.Module):
    """A spec's nodes, run one after the other."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self._network = network
        # In reverse, so that the order of declaration is never the order of execution by luck.
        for node in reversed(network.nodes):
            module = module_of(node)
            if module is not None:
                self.add_module(module_name(node), module)

    def forward(self, *single: Tensor, **named: Tensor) -> Tensor:
        """The value of the last node."""
        values = dict(zip(self._network.inputs, single, strict=True)) if single else named
        if set(values) != set(self._network.inputs):  # what Python says of a module that names its arguments
            raise TypeError(f"forward() takes the arguments {sorted(self._network.inputs)}, got {sorted(values)}")
        for node in self._network.nodes:
            values[node.name] = self._value(node, [values[source] for source in node.sources])
        return values[self._network.nodes[-1].name]

    def _value(self, node: nodes.Node, entering: list[Tensor]) -> Tensor:
        if isinstance(node, nodes.Add):
            return torch.stack(entering).sum(dim=0) if len(entering) > 2 else entering[0] + entering[1]
        if isinstance(node, nodes.Concat):
            return torch.cat(entering, dim=1)
        name = node.layer if isinstance(node, nodes.Reuse) else module_name(node)
        value: Tensor = self.get_submodule(name)(entering[0])
        return value[0] if isinstance(node, nodes.Recurrent) else value  # the states of all steps, then the last


def module_name(node: nodes.Node) -> str:
    """Name a node's module: PyTorch itself adds `.l0` to the parameters of a recurrent module."""
    return node.name.removesuffix(".l0")


def module_of(node: nodes.Node) -> nn.Module | None:
    """The module that computes what a node computes; None for nodes that join several values or reuse a layer."""
    match node:
        case nodes.Dense():
            out, features = node.weight.shape
            return _fill_weights(nn.Linear(features, out, bias=node.bias is not None), node)
        case nodes.Conv() | nodes.ConvTranspose():
            return _fill_weights(_convolution(node), node)
        case nodes.Embedding():
            return _fill_weights(nn.Embedding(*node.weight.shape), node)
        case nodes.BatchNorm():
            module = nn.BatchNorm2d(len(node.scale), eps=node.epsilon)  # the suite normalises images
            module.load_state_dict({"running_mean": torch.from_numpy(node.mean)}, strict=False)
            module.load_state_dict({"running_var": torch.from_numpy(node.variance)}, strict=False)
            return _fill_weights(module, node)
        case nodes.LayerNorm():
            return _fill_weights(nn.LayerNorm(len(node.scale), eps=node.epsilon), node)
        case nodes.Lstm() | nodes.Gru():
            width, biases = node.weight_ih.shape[1], node.bias_ih is not None
            return _fill_weights(RECURRENT[type(node)](width, node.units, bias=biases, batch_first=True), node)
        case nodes.MaxPool() | nodes.AveragePool():
            return POOLS[type(node)][len(node.size) - 1](node.size, node.geometry.stride)
        case nodes.Relu() | nodes.Tanh() | nodes.Sigmoid() | nodes.Softmax() | nodes.Flatten():
            return PLAIN[type(node)]()
        case nodes.Add() | nodes.Concat() | nodes.Reuse():
            return None
    raise UnsupportedNetworkError(f"no PyTorch module for a '{type(node).__name__}'")


def _convolution(node: nodes.Conv | nodes.ConvTranspose) -> nn.Module:
    geometry = node.geometry
    if not all(before == after for before, after in geometry.padding):
        raise UnsupportedNetworkError("PyTorch pads both sides alike")
    out, per_group, *kernel = node.weight.shape
    channels = (per_group * geometry.groups, out)
    return CONVOLUTIONS[type(node)][len(kernel) - 1](
        *(channels if isinstance(node, nodes.Conv) else channels[::-1]),
        tuple(kernel),
        stride=geometry.stride,
        padding=tuple(before for before, _ in geometry.padding),
        dilation=geometry.dilation,
        groups=geometry.groups,
        bias=node.bias is not None,
    )


def _fill_weights(module: nn.Module, layer: nodes.Layer) -> nn.Module:
    # PyTorch stores weights in the canonical layout, and calls the scale of a norm its weight.
    parameters = {"weight": layer.parameters.get("scale"), **layer.parameters}
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            values: Array | None = parameters[name.removesuffix("_l0")]
            parameter.copy_(torch.from_numpy(np.asarray(values, np.float32)))
    return module


def _zero_weights(module: nn.Module) -> nn.Module:
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
    return module
