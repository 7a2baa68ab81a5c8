"""A dense tail run in NumPy gives what the framework itself gives, on every backend."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest

from arachne.data.run import whole_part
from arachne.decisions.losses import cross_entropy
from arachne.localise import Contrast
from arachne.scoring.cut import Cuts, CutScorer
from arachne.scoring.dense_tail import DenseTailScorer, make_scorer
from tests.backends import golden


@pytest.mark.parametrize("kind", ["mlp", "cnn"])
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.backend(name)) for name in ("torch", "onnx", "keras")]
)
def test_a_dense_tail_in_numpy_agrees_with_the_framework(
    name: str, kind: str, networks_in: Callable[[str], ModuleType]
) -> None:
    backend, data = networks_in(name).build(golden.network(kind)), golden.digits()
    part = whole_part(backend, data, "top:1")
    suspects = Contrast().localise(backend, part, rng=np.random.default_rng(0)).suspects
    fast, plain = make_scorer(backend, data.inputs, suspects), CutScorer(backend, Cuts(backend, data.inputs), suspects)
    assert isinstance(fast, DenseTailScorer)
    rng = np.random.default_rng(1)
    values, rows = suspects.values + 0.1 * rng.normal(size=len(suspects)), rng.permutation(len(data))[:700]
    loss = cross_entropy(data.labels[rows])
    np.testing.assert_allclose(fast.scores(values, rows), plain.scores(values, rows), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(
        fast.gradients(values, loss, rows), plain.gradients(values, loss, rows), rtol=1e-3, atol=1e-5
    )
