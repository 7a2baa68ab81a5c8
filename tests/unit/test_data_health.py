"""Normalisation that does not fit the data, dead and saturated layers are seen; healthy networks are left alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import arachne
from arachne.data.chance import find_misreading
from arachne.data.health import examine
from arachne.data.labelled import LabelledData
from arachne.data.run import whole_part

pytestmark = pytest.mark.backend("torch")


@pytest.fixture
def inputs() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(200, 1, 8, 8)).astype(np.float32)


def make(function: str, inputs: np.ndarray) -> Any:
    from torch import nn, no_grad, tensor

    made: Any = nn.Sequential(
        nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), getattr(nn, function)(), nn.Flatten(), nn.Linear(216, 4)
    )
    made[1].momentum = None
    with no_grad():
        made.train()(tensor(inputs))
    return made.eval()


def test_a_healthy_network_is_left_alone(inputs: np.ndarray) -> None:
    for function in ("ReLU", "Tanh"):
        found = examine(arachne.load(make(function, inputs)), inputs)
        assert (found.norms, found.sentences) == (1, ())


def test_statistics_that_do_not_fit_are_named(inputs: np.ndarray) -> None:
    net = make("ReLU", inputs)
    net[1].running_var *= 9
    (sentence,) = examine(arachne.load(net), inputs).sentences
    assert sentence.startswith("the stored statistics of 1 of 1 normalisation do not fit these inputs, most of all '1'")


@pytest.mark.parametrize(
    ("function", "shift", "factor", "word"), [("ReLU", -100, 1, "dead"), ("Tanh", 0, 200, "satur")]
)
def test_dead_and_saturated_layers_are_named(
    inputs: np.ndarray, function: str, shift: float, factor: float, word: str
) -> None:
    net = make(function, inputs)
    net[1].bias.data += shift
    net[1].weight.data *= factor
    backend = arachne.load(net)
    backend.look(inputs)
    (sentence,) = examine(backend, inputs).sentences
    assert sentence.startswith(f"almost {word}")


def test_a_normalisation_of_single_inputs_stores_nothing(inputs: np.ndarray) -> None:
    from torch import nn

    net = nn.Sequential(nn.Flatten(), nn.LayerNorm(64), nn.Linear(64, 4)).eval()
    assert examine(arachne.load(net), 5 + 3 * inputs).sentences == ()


def test_a_preprocessing_that_fits_better_is_named() -> None:
    from torch import nn, tensor

    rng = np.random.default_rng(1)
    labels = rng.integers(3, size=300)
    pictures = (0.5 + 0.02 * (labels[:, None] == np.arange(3)) + 0.002 * rng.normal(size=(300, 3))).astype(np.float32)
    net = nn.Sequential(nn.Linear(3, 3))
    mean, deviation = float(pictures.mean()), float(pictures.std())
    net[0].weight.data = 4 * tensor(np.eye(3, dtype=np.float32))
    net[0].bias.data = tensor(np.array([3.0, 0, 0], np.float32))
    part = whole_part(arachne.load(net.eval()), LabelledData(pictures, labels), "*:*")
    found = find_misreading(arachne.load(net), part, float(np.mean(part.right)))
    assert found is not None
    assert found.cured
    assert any(f"mean={mean:.4g} std={deviation:.4g}" in line and "100 %" in line for line in found.table)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_bytes_are_told_where_the_model_is_better_on_values_up_to_one(dtype: type) -> None:
    from torch import nn, tensor

    rng = np.random.default_rng(1)
    labels = rng.integers(2, size=300)
    values = rng.integers(0, 100, size=(300, 8, 8)) + 150 * (labels[:, None, None] == 1)
    pictures = np.minimum(values, 255).astype(dtype)
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 2)).eval()
    net[1].weight.data = tensor(np.stack([np.zeros(64), np.ones(64) / 64]).astype(np.float32))
    net[1].bias.data = tensor(np.array([0.25, 0], np.float32))  # bright is above a quarter, or above 0.25 of 255
    backend = arachne.load(net)
    part = whole_part(backend, LabelledData(pictures.astype(np.float32), labels), "*:*")
    mixed = replace(part, data=LabelledData(pictures, labels))
    found = find_misreading(backend, mixed, 0.8)
    assert found is not None
    assert "give --preprocess scale=1/255" in found.sentence
    net[1].bias.data = 255 * net[1].bias.data  # and a model that was trained on bytes is left alone
    assert find_misreading(arachne.load(net), mixed, 0.95) is None
