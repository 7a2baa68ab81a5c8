"""The Fisher ratio is the same in every framework."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest

from arachne.data.labelled import LabelledData
from arachne.data.run import whole_part
from arachne.localise import Fisher
from arachne.testing import ReferenceBackend
from arachne.testing.networks import convnet, random_inputs


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.backend(name)) for name in ("torch", "onnx", "keras")]
)
def test_every_framework_finds_the_same_scores(name: str, networks_in: Callable[[str], ModuleType]) -> None:
    network = convnet(activation="tanh")
    reference = ReferenceBackend(network)
    inputs = random_inputs(network, 60, seed=3)
    predictions = reference.predict(inputs)
    wrong = int(np.bincount(predictions).argmax())
    labels = np.where((predictions == wrong) & (np.arange(60) % 3 == 0), 1 - min(wrong, 1), predictions)
    found = []
    for backend in (reference, networks_in(name).build(network)):
        part = whole_part(backend, LabelledData(inputs, labels), f"*:{wrong}")
        found.append(Fisher(biases=True, depth="all").scores(backend, part, rng=np.random.default_rng(0)))
    assert list(found[0]) == list(found[1])
    for place, expected in found[0].items():
        np.testing.assert_allclose(found[1][place], expected, rtol=1e-3, atol=1e-5)
