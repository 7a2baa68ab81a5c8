"""The contract, checked by the suite that comes with Arachne."""

from __future__ import annotations

import pytest
from arachne_stack import StackBackend

from arachne.testing import BackendConformance, Network
from arachne.testing.nodes import Dense, Relu


def build(network: Network) -> StackBackend:
    """The network of a spec, with exactly its weights, in the backend under test."""
    layers = {}
    for node in network.nodes:
        if isinstance(node, Dense):
            layers[node.name] = {"weight": node.weight, "bias": node.bias}
        elif not isinstance(node, Relu):
            raise NotImplementedError(type(node).__name__)
    return StackBackend(layers)


class TestStack(BackendConformance):
    """One fixture; what the backend cannot hold is declared and shows as a skip with its reason."""

    UNSUPPORTED = {  # noqa: RUF012
        **dict.fromkeys(["convnet", "conv1d", "conv2d", "conv3d", "depthwise"], "no convolutions"),
        **dict.fromkeys(["mlp_tanh", "residual", "branches", "shared", "steps"], "nothing but a relu between layers"),
        **dict.fromkeys(["softmax", "one_sigmoid"], "no probabilities"),
        "no_bias": "every layer has a bias",
        "two_inputs": "one input",
    }

    @pytest.fixture
    def make_backend(self):
        return build
