"""The same network with the same weights in Keras and elsewhere: same activations, gradients, suspects and patch.

Tolerances are those of float32 sums in another order: 1e-4 relative and 2e-5 absolute for what a layer gives, 1e-5
absolute for mean gradients. Addresses must be equal, values of a patch to 1e-6.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

pytest.importorskip("arachne_keras", exc_type=ImportError)

from arachne_keras import KerasBackend  # isort: skip  # before Keras: it settles what Keras runs on
import keras
from keras import layers as kl

import arachne
from arachne.backend import ModelBackend
from arachne.data.labelled import LabelledData
from arachne.localise import Bidirectional
from arachne.search import DifferentialEvolution
from arachne.testing import Network, mlp, random_inputs
from arachne.testing.networks import conv, dense
from arachne.testing.nodes import AveragePool, Flatten, Relu
from arachne.values import Array

pytestmark = pytest.mark.backend("keras")

Networks = Callable[[str], ModuleType]


def cnn() -> Network:
    """Stride, padding on one side more than on the other axis, and a depthwise convolution."""
    rng = np.random.default_rng(2)
    nodes = (
        conv("first", "input", 2, 4, (3, 3), rng, stride=(2, 2), padding=((1, 1), (0, 0))),
        Relu("act1", "first"),
        conv("each", "act1", 4, 8, (3, 3), rng, padding=((1, 1), (1, 1)), groups=4),
        Relu("act2", "each"),
        AveragePool("pool", "act2", (2, 2)),
        Flatten("flatten", "pool"),
        dense("hidden", "flatten", 8 * 3 * 2, 10, rng),
        Relu("act3", "hidden"),
        dense("head", "act3", 10, 3, rng),
    )
    return Network({"input": (2, 12, 11)}, nodes)


NETWORKS: dict[str, Callable[[], Network]] = {"mlp": lambda: mlp([6, 12, 4], seed=1), "cnn": cnn}


@pytest.fixture(params=["torch", pytest.param("onnx", marks=pytest.mark.backend("onnx"))])
def other(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=list(NETWORKS))
def pair(
    request: pytest.FixtureRequest, networks_in: Networks, other: str
) -> tuple[Network, ModelBackend, ModelBackend]:
    network = NETWORKS[request.param]()
    return network, networks_in("keras").build(network), networks_in(other).build(network)


def labelled(network: Network, backend: ModelBackend, n: int = 120) -> tuple[LabelledData, str]:
    """Inputs labelled with the model's own predictions, some of the most frequent made a fault; and the fault."""
    inputs = random_inputs(network, n, seed=4)
    labels = backend.predict(inputs).astype(np.int64)
    predicted = int(np.bincount(labels).argmax())
    meant = (predicted + 1) % 3
    rows = np.flatnonzero(labels == predicted)
    labels[rows[: len(rows) // 3]] = meant
    return LabelledData(inputs, labels), f"{meant}:{predicted}"


def test_activations_and_gradients_agree(pair: tuple[Network, ModelBackend, ModelBackend]) -> None:
    network, ours, theirs = pair
    inputs = random_inputs(network, 9, seed=3)
    scores = theirs.forward(inputs)
    np.testing.assert_allclose(ours.forward(inputs), scores, rtol=1e-4, atol=2e-5)
    labels = np.random.default_rng(0).integers(0, scores.shape[1], 9)
    seed = np.random.default_rng(1).normal(size=scores.shape).astype(np.float32)
    found, expected = ours.weight_gradients(inputs, labels), theirs.weight_gradients(inputs, labels)
    for layer in network.layers:
        (one,), (another,) = ours.activations(inputs, layer), theirs.activations(inputs, layer)
        np.testing.assert_allclose(one.entering["weight"], another.entering["weight"], rtol=1e-4, atol=2e-5)
        np.testing.assert_allclose(one.leaving, another.leaving, rtol=1e-4, atol=2e-5, err_msg=layer)
        for parameter, values in expected[layer].items():
            np.testing.assert_allclose(found[layer][parameter], values, rtol=1e-4, atol=1e-5, err_msg=layer)
        np.testing.assert_allclose(
            ours.output_gradients(inputs, layer, seed)[0], theirs.output_gradients(inputs, layer, seed)[0],
            rtol=1e-4, atol=2e-5, err_msg=layer,
        )  # fmt: skip


def test_the_same_weights_are_suspected(pair: tuple[Network, ModelBackend, ModelBackend]) -> None:
    network, ours, theirs = pair
    data, fault = labelled(network, theirs)
    found, expected = (
        arachne.localise_weights(backend, data, fault, localiser=Bidirectional(min_weights=8), seed=0)
        for backend in (ours, theirs)
    )
    assert found.suspects.addresses == expected.suspects.addresses
    assert len(found.suspects) >= 8


def test_one_seed_gives_one_patch(networks_in: Networks, other: str) -> None:
    network = NETWORKS["mlp"]()
    ours, theirs = networks_in("keras").build(network), networks_in(other).build(network)
    data, fault = labelled(network, theirs)
    search = DifferentialEvolution(population=12, generations=6)
    found, expected = (
        arachne.repair(backend, data, fault, seed=3, searcher=search).patch for backend in (ours, theirs)
    )
    assert [entry.address for entry in found.entries] == [entry.address for entry in expected.entries]
    assert len(found.entries) > 0
    np.testing.assert_allclose([e.new for e in found.entries], [e.new for e in expected.entries], atol=1e-6)


def test_an_lstm_has_its_gates_where_torch_has_them() -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    lstm, head = torch.nn.LSTM(3, 4, batch_first=True), torch.nn.Linear(4, 3)
    torch.nn.init.zeros_(lstm.bias_hh_l0)  # Keras stores one bias, torch adds two
    model = keras.Sequential([keras.Input((6, 3)), kl.LSTM(4, name="lstm"), kl.Dense(3, name="head")])
    backend = KerasBackend.load(model)
    names = {"weight_ih": lstm.weight_ih_l0, "weight_hh": lstm.weight_hh_l0, "bias_ih": lstm.bias_ih_l0}
    for parameter, tensor in names.items():
        backend.set_weights("lstm", parameter, tensor.detach().numpy())
    backend.set_weights("head", "weight", head.weight.detach().numpy())
    backend.set_weights("head", "bias", head.bias.detach().numpy())

    inputs = np.random.default_rng(0).normal(size=(7, 6, 3)).astype(np.float32)
    labels = np.arange(7) % 3
    states, _ = lstm(torch.from_numpy(inputs))
    scores = head(states[:, -1])
    torch.nn.functional.cross_entropy(scores, torch.from_numpy(labels)).backward()
    np.testing.assert_allclose(backend.forward(inputs), scores.detach().numpy(), rtol=1e-4, atol=2e-5)
    found = backend.weight_gradients(inputs, labels)["lstm"]
    for parameter, tensor in names.items():
        np.testing.assert_allclose(found[parameter], tensor.grad.numpy(), rtol=1e-4, atol=1e-5, err_msg=parameter)
    (use,) = backend.activations(inputs, "lstm")
    before = np.concatenate([np.zeros((7, 1, 4), np.float32), states[:, :-1].detach().numpy()], axis=1)
    np.testing.assert_allclose(use.entering["weight_hh"], before, rtol=1e-4, atol=2e-5)
    np.testing.assert_allclose(use.leaving, gates(backend, inputs, before), rtol=1e-4, atol=2e-5)


def gates(backend: Any, inputs: Array, before: Array) -> Array:
    weights = backend.get_weights("lstm")
    total: Array = inputs @ weights["weight_ih"].T + before @ weights["weight_hh"].T + weights["bias_ih"]
    return total
