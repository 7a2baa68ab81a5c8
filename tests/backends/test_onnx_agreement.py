"""The same network in PyTorch and in ONNX: the same activations, gradients, suspects and, with one seed, patch.

Activations and gradients agree to 1e-5 of their scale (sums in another order). Suspects and the addresses of the patch
agree exactly; its values agree to the tolerance named below. The networks are smooth, so no ReLU is at its kink.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import arachne
from arachne.backend import ModelBackend
from arachne.data.labelled import LabelledData
from arachne.testing import Network
from arachne.testing.networks import convnet, mlp, random_inputs, residual
from tests.backends.onnx_networks import build

pytestmark = [pytest.mark.backend("onnx"), pytest.mark.backend("torch")]

NETWORKS: dict[str, Callable[[], Network]] = {
    "mlp": lambda: mlp([6, 12, 4], activation="tanh"),
    "convnet": lambda: convnet(activation="tanh"),
    "residual": lambda: residual(activation="tanh"),
}


@pytest.fixture(params=sorted(NETWORKS))
def pair(request: pytest.FixtureRequest, networks_in: Callable[[str], ModuleType]) -> tuple[Any, Any, Network]:
    network = NETWORKS[request.param]()
    return networks_in("torch").build(network), build(network), network


def close(a: Any, b: Any) -> None:
    np.testing.assert_allclose(a, b, atol=1e-5 * max(1.0, float(np.abs(b).max())))


def test_scores_activations_and_gradients_agree(pair: tuple[ModelBackend, ModelBackend, Network]) -> None:
    torch_model, onnx_model, network = pair
    inputs = random_inputs(network, 20)
    labels = torch_model.predict(inputs)
    close(onnx_model.forward(inputs), torch_model.forward(inputs))
    gradients, expected = onnx_model.weight_gradients(inputs, labels), torch_model.weight_gradients(inputs, labels)
    seed = np.random.default_rng(0).normal(size=torch_model.forward(inputs).shape).astype(np.float32)
    assert [info.name for info in onnx_model.layers] == [info.name for info in torch_model.layers]
    for info in torch_model.layers:
        assert replace(onnx_model.info(info.name), followed_by=None) == replace(info, followed_by=None)
        (ours,), (theirs,) = onnx_model.activations(inputs, info.name), torch_model.activations(inputs, info.name)
        close(ours.leaving, theirs.leaving)
        close(ours.entering["weight"], theirs.entering["weight"])
        close(
            onnx_model.output_gradients(inputs, info.name, seed)[0],
            torch_model.output_gradients(inputs, info.name, seed)[0],
        )
        for parameter in info.parameters:
            close(gradients[info.name][parameter], expected[info.name][parameter])


def labelled(model: ModelBackend, network: Network) -> LabelledData:
    """Inputs with labels that the model mostly agrees with, and a class it often misreads."""
    inputs = random_inputs(network, 240, seed=5)
    predictions = model.predict(inputs)
    labels = predictions.copy()
    rng = np.random.default_rng(1)
    common = int(np.bincount(predictions).argmax())
    other = int(np.bincount(predictions, minlength=3).argsort()[-2])
    wrong = np.flatnonzero(predictions == common)
    labels[rng.choice(wrong, len(wrong) // 4, replace=False)] = other
    return LabelledData(inputs, labels)


def test_one_seed_gives_the_same_suspects_and_the_same_patch(pair: tuple[ModelBackend, ModelBackend, Network]) -> None:
    torch_model, onnx_model, network = pair
    data = labelled(torch_model, network)
    predictions = torch_model.predict(data.inputs)
    row = int(np.flatnonzero(predictions != data.labels)[0])
    target = f"{data.labels[row]}:{predictions[row]}"
    searcher = arachne.DifferentialEvolution(population=16, generations=8)
    settings = arachne.Settings(seed=3, searcher=searcher)
    patches = [arachne.repair(model, data, target, settings=settings).patch for model in (torch_model, onnx_model)]
    first, second = patches
    assert [entry.address for entry in first.entries] == [entry.address for entry in second.entries]
    assert len(first.entries) > 0
    # A trial's fitness may differ in its last digits; no accepted trial hung on them here, so values are equal.
    np.testing.assert_allclose([e.new for e in second.entries], [e.new for e in first.entries], rtol=1e-6)
