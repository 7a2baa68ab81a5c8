"""The contract, checked by the suite that comes with Arachne."""

from __future__ import annotations

import pytest
from arachne_stack import StackBackend

from arachne.testing import BackendConformance, Network, UnsupportedNetworkError
from arachne.testing.nodes import Dense, Relu


def build(network: Network) -> StackBackend:
    """The network of a spec, with exactly its weights, in the backend under test."""
    kinds = [type(node) for node in network.nodes]
    if kinds != [Dense, Relu] * (len(kinds) // 2) + [Dense]:
        raise UnsupportedNetworkError("a stack is dense layers with a relu between them")
    layers = {name: layer.parameters for name, layer in network.layers.items()}
    if not all("bias" in parameters for parameters in layers.values()):
        raise UnsupportedNetworkError("every layer of a stack has a bias")
    return StackBackend(layers)


class TestStack(BackendConformance):
    """The whole suite; what `build` refuses shows as a skip with its reason."""

    @pytest.fixture
    def make_backend(self):
        return build
