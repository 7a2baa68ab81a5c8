"""The conformance suite for this backend: how a network of the suite is built in scikit-learn. It needs pytest."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier

from arachne.model.backend import ModelBackend
from arachne.testing import BackendConformance, Network, UnsupportedNetworkError
from arachne.testing.checks.suite import MakeBackend
from arachne.testing.nodes import Dense, Relu, Sigmoid, Tanh
from arachne_sklearn import SklearnBackend

WORDS = {Relu: "relu", Tanh: "tanh", Sigmoid: "logistic"}


class SklearnConformance(BackendConformance):
    """The conformance suite; networks that `build` refuses are skipped with its reason."""

    @pytest.fixture
    def make_backend(self) -> MakeBackend:
        """Return the function that builds a backend from a network."""
        return build

    def reload(self, path: Path, backend: ModelBackend, network: Network) -> ModelBackend:
        """Load the model with the suite's names, since scikit-learn has no names for layers."""
        return SklearnBackend(SklearnBackend.load(path).native, names=list(network.layers))


def build(network: Network) -> SklearnBackend:
    """The network of a spec, with exactly its weights, in a fitted `MLPClassifier`."""
    nodes = network.with_scores().nodes
    nodes = nodes if isinstance(nodes[-1], Dense) else nodes[:-1]
    hidden = {type(node) for node in nodes[1::2]}
    if not all(isinstance(node, Dense) for node in nodes[::2]) or len(nodes) % 2 == 0 or len(hidden) > 1:
        raise UnsupportedNetworkError("an MLPClassifier is dense layers with one kind of activation between them")
    if not hidden <= set(WORDS) or len(next(iter(network.inputs.values()))) > 1:
        raise UnsupportedNetworkError("an MLPClassifier takes rows of numbers, and knows relu, tanh and logistic")
    layers = [node for node in nodes[::2] if isinstance(node, Dense)]
    if any(layer.bias is None for layer in layers):
        raise UnsupportedNetworkError("every layer of an MLPClassifier has a bias")
    if len(layers[-1].weight) == 2:
        raise UnsupportedNetworkError("an MLPClassifier of two classes has one output")
    if len(layers[-1].weight) == 1 and not isinstance(network.nodes[-1], Sigmoid):
        raise UnsupportedNetworkError("an MLPClassifier of one output has a logistic function behind it")
    return SklearnBackend(
        _fit_with_weights(layers, WORDS[hidden.pop()] if hidden else "identity"), names=list(network.layers)
    )


def _fit_with_weights(layers: list[Dense], activation: str) -> MLPClassifier:
    """Fit a classifier to zeros of the right shape, and set these weights."""
    outputs, width = len(layers[-1].weight), layers[0].weight.shape[1]
    labels = np.arange(max(2, outputs))
    model = MLPClassifier([len(layer.weight) for layer in layers[:-1]], activation=activation, max_iter=1)
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        model.fit(np.zeros((len(labels), width), np.float32), labels)
    model.coefs_ = [np.array(layer.weight.T) for layer in layers]
    model.intercepts_ = [np.array(layer.bias) for layer in layers]
    return model
