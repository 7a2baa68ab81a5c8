"""One network with one set of weights in Keras and elsewhere: same activations, gradients, suspects and patch.

Tolerances are those of float32 sums in another order: 1e-4 relative and 2e-5 absolute for what a layer gives, 1e-5
absolute for mean gradients. Suspects must be equal, and so must a patch's addresses; its values agree to 1e-6.

Frameworks call layers differently, so layers are compared by their place in the order of execution, weights by their
canonical index. A second bias of an LSTM is where it is stored: PyTorch and ONNX have one, Keras has not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from arachne.decisions.losses import cross_entropy

pytest.importorskip("arachne_keras", exc_type=ImportError)

from arachne_keras import KerasBackend  # isort: skip  # before Keras: it settles what Keras runs on
import keras
from keras import layers as kl

import arachne
from arachne.data.labelled import LabelledData
from arachne.localise import Bidirectional
from arachne.model.backend import ModelBackend
from arachne.model.values import Address, Array, Inputs, take
from arachne.search import DifferentialEvolution
from arachne.testing import Network, mlp, random_inputs
from arachne.testing.networks import conv, dense
from arachne.testing.nodes import AveragePool, Flatten, Relu
from tests.backends import lstm_networks

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


@dataclass(frozen=True)
class Pair:
    """One network twice.

    Attributes:
        ours: In Keras.
        theirs: In another framework.
        inputs: Some for it.
    """

    ours: ModelBackend
    theirs: ModelBackend
    inputs: Inputs

    @property
    def layers(self) -> list[tuple[str, str]]:
        """The names of the same layer in both."""
        return [(one.name, other.name) for one, other in zip(self.ours.layers, self.theirs.layers, strict=True)]


NETWORKS: dict[str, Callable[[], Network]] = {"mlp": lambda: mlp([6, 12, 4], seed=1), "cnn": cnn}


@pytest.fixture(scope="module", params=["torch", pytest.param("onnx", marks=pytest.mark.backend("onnx"))])
def other(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module", params=[*NETWORKS, "lstm"])
def pair(request: pytest.FixtureRequest, networks_in: Networks, other: str) -> Pair:
    if request.param == "lstm":
        shape = (160, lstm_networks.STEPS, lstm_networks.WIDTH)
        inputs = np.random.default_rng(4).normal(size=shape).astype(np.float32)
        return Pair(lstm_networks.IN["keras"](), lstm_networks.IN[other](), inputs)
    network = NETWORKS[request.param]()
    made = [networks_in(name).build(network) for name in ("keras", other)]
    return Pair(made[0], made[1], random_inputs(network, 160, seed=4))


def label_inputs(pair: Pair) -> tuple[LabelledData, str]:
    """Inputs labelled with the model's own predictions, some of the most frequent made a fault; and the fault."""
    labels = pair.theirs.predict(pair.inputs).astype(np.int64)
    predicted, meant = np.bincount(labels).argsort()[::-1][:2]
    rows = np.flatnonzero(labels == predicted)
    labels[rows[: len(rows) // 3]] = meant
    return LabelledData(pair.inputs, labels), f"{meant}:{predicted}"


def place_of(backend: ModelBackend, addresses: Iterable[Address]) -> list[tuple[int, str, tuple[int, ...]]]:
    """Addresses with the places of their layers in the order of execution."""
    order = [info.name for info in backend.layers]
    return [(order.index(address.layer), address.parameter, address.index) for address in addresses]


def test_activations_and_gradients_agree(pair: Pair) -> None:
    ours, theirs, inputs = pair.ours, pair.theirs, take(pair.inputs, slice(0, 9))
    scores = theirs.forward(inputs)
    np.testing.assert_allclose(ours.forward(inputs), scores, rtol=1e-4, atol=2e-5)
    labels = np.random.default_rng(0).integers(0, scores.shape[1], 9)
    seed = np.random.default_rng(1).normal(size=scores.shape).astype(np.float32)
    found, expected = (
        ours.weight_gradients(inputs, cross_entropy(labels)),
        theirs.weight_gradients(inputs, cross_entropy(labels)),
    )
    for layer, other in pair.layers:
        (one,), (another,) = ours.activations(inputs, layer), theirs.activations(inputs, other)
        assert one.entering.keys() == another.entering.keys()
        for parameter, values in another.entering.items():
            np.testing.assert_allclose(one.entering[parameter], values, rtol=1e-4, atol=2e-5, err_msg=layer)
        np.testing.assert_allclose(one.leaving, another.leaving, rtol=1e-4, atol=2e-5, err_msg=layer)
        assert set(theirs.info(other).parameters) - set(ours.info(layer).parameters) <= {"bias_hh"}
        for parameter in ours.info(layer).parameters:
            values = found[layer, parameter]
            np.testing.assert_allclose(values, expected[other, parameter], rtol=1e-4, atol=1e-5, err_msg=layer)
        np.testing.assert_allclose(
            ours.output_gradients(inputs, layer, seed)[0], theirs.output_gradients(inputs, other, seed)[0],
            rtol=1e-4, atol=2e-5, err_msg=layer,
        )  # fmt: skip


@pytest.mark.parametrize("where", ["everywhere", "first layer"])
def test_the_same_weights_are_suspected(pair: Pair, where: str) -> None:
    data, fault = label_inputs(pair)
    found, expected = (
        place_of(
            backend, arachne.localise_weights(backend, data, fault, localiser=localiser, seed=0).suspects.addresses
        )
        for backend, localiser in zip((pair.ours, pair.theirs), localisers(pair, where), strict=True)
    )
    assert found == expected
    assert len(found) >= 8


@pytest.mark.parametrize("where", ["everywhere", "first layer"])
def test_one_seed_gives_one_patch(pair: Pair, where: str) -> None:
    data, fault = label_inputs(pair)
    search = DifferentialEvolution(population=12, generations=6)
    found, expected = (
        arachne.repair(backend, data, fault, seed=3, localiser=localiser, searcher=search).patch
        for backend, localiser in zip((pair.ours, pair.theirs), localisers(pair, where), strict=True)
    )
    places = place_of(pair.ours, [entry.address for entry in found.entries])
    assert places == place_of(pair.theirs, [entry.address for entry in expected.entries])
    assert len(places) > 0
    np.testing.assert_allclose([e.new for e in found.entries], [e.new for e in expected.entries], atol=1e-6)


def localisers(pair: Pair, where: str) -> list[Bidirectional]:
    """For each of the two: the first layer is the one whose layout and gates differ most between frameworks."""
    names = pair.layers[0] if where == "first layer" else (None, None)
    return [Bidirectional(min_weights=8, include=[] if name is None else [name]) for name in names]


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
    found = backend.weight_gradients(inputs, cross_entropy(labels))
    for parameter, tensor in names.items():
        np.testing.assert_allclose(
            found["lstm", parameter], tensor.grad.numpy(), rtol=1e-4, atol=1e-5, err_msg=parameter
        )
    (use,) = backend.activations(inputs, "lstm")
    before = np.concatenate([np.zeros((7, 1, 4), np.float32), states[:, :-1].detach().numpy()], axis=1)
    np.testing.assert_allclose(use.entering["weight_hh"], before, rtol=1e-4, atol=2e-5)
    np.testing.assert_allclose(use.leaving, gates(backend, inputs, before), rtol=1e-4, atol=2e-5)


def gates(backend: Any, inputs: Array, before: Array) -> Array:
    weights = backend.get_weights("lstm")
    total: Array = inputs @ weights["weight_ih"].T + before @ weights["weight_hh"].T + weights["bias_ih"]
    return total
