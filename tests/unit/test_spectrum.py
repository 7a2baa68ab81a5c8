"""Suspicious neurons on counts worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from arachne.data.labelled import LabelledData
from arachne.data.part import Part
from arachne.data.run import whole_part
from arachne.localise import Spectrum
from arachne.localise.spectrum import dstar, ochiai, tarantula
from arachne.testing import Network, ReferenceBackend
from arachne.testing.networks import dense

FAILING, PASSING = np.array([4.0, 2.0, 0.0]), np.array([0.0, 3.0, 6.0])


def test_formulas_are_those_of_the_literature() -> None:
    # 4 negatives, 6 positives: active on 4 and 0, on 2 and 3, on 0 and 6 of them.
    np.testing.assert_allclose(tarantula(FAILING, PASSING, 4, 6), [1, 0.5 / (0.5 + 0.5), 0])
    np.testing.assert_allclose(ochiai(FAILING, PASSING, 4, 6), [1, 2 / np.sqrt(4 * 5), 0])
    np.testing.assert_allclose(dstar(FAILING, PASSING, 4, 6), [np.inf, 8 / (3 + 2), 0])


def two_neurons() -> tuple[ReferenceBackend, Part]:
    """Hidden neuron 0 is active on the first feature, 1 on the second; the fault has the second feature alone."""
    rng = np.random.default_rng(0)
    layers = (dense("hidden", "input", 2, 2, rng), dense("scores", "hidden", 2, 2, rng))
    backend = ReferenceBackend(Network({"input": (2,)}, layers))
    for name in ("hidden", "scores"):
        backend.set_weights(name, "weight", np.eye(2, dtype=np.float32))
        backend.set_weights(name, "bias", np.zeros(2, np.float32))
    inputs = np.array([[-1, 2], [-1, 3], [3, -1], [2, -1], [4, -1]], np.float32)
    return backend, whole_part(backend, LabelledData(inputs, np.zeros(5, np.int64)), "0:1")


@pytest.mark.parametrize("formula", ["tarantula", "ochiai", "dstar"])
def test_the_neuron_of_the_fault_comes_first(formula: str) -> None:
    backend, part = two_neurons()
    found = Spectrum(formula=formula, count=2).localise(backend, part, rng=np.random.default_rng(0))
    assert {(address.layer, address.index[0]) for address in found.suspects.addresses} == {("hidden", 1)}


def test_the_largest_weight_of_a_neuron_comes_first() -> None:
    backend, part = two_neurons()
    backend.set_weights("hidden", "weight", np.array([[1, 0], [0.25, 1]], np.float32))
    found = Spectrum(count=1).localise(backend, part, rng=np.random.default_rng(0))
    assert [address.index for address in found.suspects.addresses] == [(1, 1)]


def test_the_last_layer_is_looked_at_only_by_name() -> None:
    backend, part = two_neurons()
    rng = np.random.default_rng(0)
    assert {layer for layer, _ in Spectrum().scores(backend, part, rng=rng)} == {"hidden"}
    assert {layer for layer, _ in Spectrum(include=("scores",)).scores(backend, part, rng=rng)} == {"scores"}


def test_a_threshold_decides_what_is_active() -> None:
    backend, part = two_neurons()
    scores = Spectrum(active_above=2.5).scores(backend, part, rng=np.random.default_rng(0))["hidden", "weight"]
    # Neuron 1 is above 2.5 on one of two negatives and no positive, neuron 0 on two of three positives alone.
    np.testing.assert_allclose(scores[1], 1, atol=1e-6)
    np.testing.assert_allclose(scores[0], 0, atol=1e-6)
