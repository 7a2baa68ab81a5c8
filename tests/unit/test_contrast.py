"""Contrast localisation against the formula worked out layer by layer."""

from __future__ import annotations

import numpy as np
import pytest

from arachne.data.labelled import LabelledData
from arachne.data.part import Part
from arachne.data.run import whole_part
from arachne.errors import NothingToRepairError
from arachne.localise import Contrast
from arachne.localise.ranked import default_count
from arachne.model.values import Array
from arachne.testing import Network, ReferenceBackend, mlp, random_inputs
from arachne.testing.networks import conv, dense
from arachne.testing.nodes import Flatten, Relu


def part_of(network: Network) -> tuple[ReferenceBackend, Part]:
    """A network, and inputs of which some that it reads as 1 should be 0."""
    backend = ReferenceBackend(network)
    inputs = random_inputs(network, 60, seed=3)
    predictions = backend.predict(inputs)
    labels = np.where((predictions == 1) & (np.arange(60) % 3 == 0), 0, predictions)
    part = whole_part(backend, LabelledData(inputs, labels), "0:1")
    assert len(part.negatives) > 2
    return backend, part


def expected_contrast(backend: ReferenceBackend, part: Part, layer: str) -> Array:
    """|w * (difference of the mean inputs) * mean gradient of (wrong - true)|, one weight at a time."""
    inputs = np.asarray(part.data.inputs)
    seed = np.zeros((len(part.negatives), part.n_classes), np.float32)
    seed[:, 1], seed[:, 0] = 1, -1
    gradient = backend.output_gradients(inputs[part.negatives], layer, seed)[0].mean(axis=0)
    entering = [
        backend.activations(inputs[rows], layer)[0].entering["weight"].mean(axis=0)
        for rows in (part.negatives, part.positives)
    ]
    weight = backend.get_weights(layer)["weight"]
    difference = entering[0] - entering[1]
    if weight.ndim == 2:
        return np.asarray(np.abs(weight * gradient[:, None] * difference[None]))
    scores = np.zeros_like(weight)
    rows, columns = gradient.shape[1:]
    for out, channel, i, j in np.ndindex(*weight.shape):
        scores[out, channel, i, j] = (gradient[out] * difference[channel, i : i + rows, j : j + columns]).sum()
    return np.asarray(np.abs(weight * scores))


def cnn() -> Network:
    rng = np.random.default_rng(1)
    nodes = (
        conv("first", "input", 2, 3, (3, 3), rng),
        Relu("act", "first"),
        Flatten("flat", "act"),
        dense("head", "flat", 3 * 3 * 3, 3, rng),
    )
    return Network({"input": (2, 5, 5)}, nodes)


@pytest.mark.parametrize(("network", "layer"), [(mlp([6, 9, 4], seed=1), "fc1"), (mlp([6, 9, 4], seed=1), "fc2")])
def test_the_contrast_of_a_dense_layer_is_the_formula(network: Network, layer: str) -> None:
    backend, part = part_of(network)
    scores = Contrast().scores(backend, part, rng=np.random.default_rng(0))
    np.testing.assert_allclose(scores[layer, "weight"], expected_contrast(backend, part, layer), rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("layer", ["first", "head"])
def test_the_contrast_of_a_convolution_sums_over_positions(layer: str) -> None:
    backend, part = part_of(cnn())
    scores = Contrast(depth="all").scores(backend, part, rng=np.random.default_rng(0))
    np.testing.assert_allclose(scores[layer, "weight"], expected_contrast(backend, part, layer), rtol=1e-4, atol=1e-7)


def test_the_suspects_have_the_largest_contrast_of_all_layers_together() -> None:
    backend, part = part_of(mlp([6, 9, 4], seed=1))
    found = Contrast(count=7).localise(backend, part, rng=np.random.default_rng(0))
    scores = Contrast().scores(backend, part, rng=np.random.default_rng(0))
    chosen = [scores[a.layer, a.parameter][a.index] for a in found.suspects.addresses]
    others = np.sort(np.concatenate([values.ravel() for values in scores.values()]))
    assert sorted(chosen) == pytest.approx(others[-7:].tolist())
    assert found.n_candidates == 6 * 9 + 9 * 4


@pytest.mark.parametrize(
    ("depth", "layers"), [("auto", {"head"}), ("tail", {"head"}), ("deep", {"first"}), ("all", {"first", "head"})]
)
def test_depth_says_which_layers_are_looked_at(depth: str, layers: set[str]) -> None:
    backend, part = part_of(cnn())
    scores = Contrast(depth=depth).scores(backend, part, rng=np.random.default_rng(0))
    assert {layer for layer, _ in scores} == layers


def test_small_models_get_fewer_suspects_than_large_ones() -> None:
    assert [default_count(n) for n in (100, 2_368, 79_400, 10**8)] == [30, 118, 300, 300]


def test_a_fault_nobody_shows_cannot_be_localised() -> None:
    backend, part = part_of(mlp([6, 9, 4], seed=1))
    right = Part(part.data.take(part.positives), part.rows[part.positives], part.scores[part.positives], part.targets)
    with pytest.raises(NothingToRepairError, match="no negative inputs"):
        Contrast().scores(backend, right, rng=np.random.default_rng(0))
