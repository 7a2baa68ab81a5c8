"""Training in PyTorch and Keras: what stays as it was, and what no conformance network has."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

import arachne
from arachne.adapting.plain_fit import plain_fit
from arachne.errors import UsageError
from arachne.model.cut import weights_of
from arachne.model.fitting import Plan
from arachne.rivals import Apricot
from tests.backends import golden

PLAN = Plan(batch=5, rate=0.05, optimiser="sgd")
INPUTS = np.random.default_rng(0).normal(size=(12, 6)).astype(np.float32)
LABELS = np.arange(12) % 3


def torch_net() -> Any:
    """Two dense layers with batch normalisation and dropout between them."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3))


def keras_net(batch: int | None = None) -> Any:
    """A Keras model with its softmax."""
    import keras
    from keras import layers

    keras.utils.set_random_seed(0)
    parts = [layers.Dense(8), layers.BatchNormalization(), layers.ReLU(), layers.Dropout(0.5)]
    return keras.Sequential([keras.Input((6,), batch_size=batch), *parts, layers.Dense(3, activation="softmax")])


@pytest.mark.backend("torch")
def test_training_leaves_a_module_as_it_was() -> None:
    import torch

    net = torch_net().train()
    net[4].bias.requires_grad_(False)
    before = {name: values.clone() for name, values in net.state_dict().items()}
    backend = arachne.load(net)
    backend.look(INPUTS)
    found = backend.fit(INPUTS, LABELS, PLAN)
    assert net.training
    assert all(parameter.grad is None for parameter in net.parameters())
    assert not net[4].bias.requires_grad
    assert all(torch.equal(values, before[name]) for name, values in net.state_dict().items())
    np.testing.assert_array_equal(found["4", "bias"], before["4.bias"].numpy())  # its author has frozen it
    assert np.any(found["1", "scale"] != before["1.weight"].numpy())


@pytest.mark.backend("torch")
def test_a_module_that_is_frozen_as_a_whole_is_not_trained() -> None:
    with pytest.raises(UsageError, match="every weight of the model is frozen"):
        arachne.load(torch_net().requires_grad_(False)).fit(INPUTS, LABELS, PLAN)


@pytest.mark.backend("keras")
def test_training_leaves_a_keras_model_as_it_was() -> None:
    net = keras_net()
    net.compile("sgd", "sparse_categorical_crossentropy")
    net.train_on_batch(INPUTS, LABELS)
    net.layers[-1].bias.trainable = False
    own, steps = net.optimizer, int(net.optimizer.iterations.numpy())
    before = net.get_weights()
    backend = arachne.load(net)
    found = backend.fit(INPUTS, LABELS, PLAN)
    assert net.optimizer is own
    assert int(own.iterations.numpy()) == steps
    for values, was in zip(net.get_weights(), before, strict=True):
        np.testing.assert_array_equal(values, was)
    np.testing.assert_array_equal(found[backend.layers[-1].name, "bias"], before[-1])
    net.trainable = False
    with pytest.raises(UsageError, match="every weight of the model is frozen"):
        arachne.load(net).fit(INPUTS, LABELS, PLAN)


@pytest.mark.backend("keras")
def test_a_keras_model_of_one_batch_size_is_trained_in_batches_of_that_size_at_most() -> None:
    backend = arachne.load(keras_net(batch=4))
    found = backend.fit(INPUTS, LABELS, PLAN)
    expected = plain_fit(backend, INPUTS, LABELS, Plan(batch=4, rate=0.05, optimiser="sgd"))
    for place, values in expected.items():
        np.testing.assert_allclose(found[place], values, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.backend(name)) for name in ("torch", "keras")])
def test_apricot_repairs_with_the_frameworks_own_training(name: str) -> None:
    build = importlib.import_module(f"arachne_{name}.conformance").build
    digits, backend = golden.digits(), build(golden.network("mlp"))
    rows = np.random.default_rng(0).permutation(len(digits))
    search = Apricot(reduced=2, reduced_epochs=1, epochs=1, train_rate=2e-3)
    found = arachne.repair(
        backend, digits.take(rows[900:]), "*:8", searcher=search, training=digits.take(rows[:900]), seed=3
    )
    assert found.search.better
    before = weights_of(backend)
    again = arachne.repair(
        backend, digits.take(rows[900:]), "*:8", searcher=search, training=digits.take(rows[:900]), seed=3
    )
    assert again.patch.digest == found.patch.digest
    for place, values in weights_of(backend).items():
        np.testing.assert_array_equal(values, before[place])
