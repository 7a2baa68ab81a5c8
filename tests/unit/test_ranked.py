"""The largest scores over many parameters, block by block, are those of all of them together."""

from __future__ import annotations

import numpy as np
import pytest

from arachne.localise import ranked
from arachne.localise.ranked import first_largest, largest
from arachne.model.values import Address
from arachne.testing import ReferenceBackend, mlp
from arachne.weights.selection import Selection


@pytest.mark.parametrize("size", [1, 7, 40, 999, 1000, 1200])
def test_the_largest_of_many_blocks_are_those_of_one_sort(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranked, "BLOCK", 64)
    values = np.random.default_rng(0).integers(0, 30, 1000).astype(np.float32)  # many are equal
    np.testing.assert_array_equal(first_largest(values, size), np.argsort(-values, kind="stable")[:size])


def test_the_largest_over_parameters_are_those_of_all_scores_together() -> None:
    rng = np.random.default_rng(1)
    scores = {("a", "weight"): rng.integers(0, 9, (5, 4)), ("b", "weight"): rng.integers(0, 9, (3, 2, 2))}
    places = [(*key, place) for key, values in scores.items() for place in range(values.size)]
    order = np.argsort(-np.concatenate([values.ravel() for values in scores.values()]), kind="stable")
    for size in (1, 6, 32):
        found = {(*key, place) for key, flat in largest(scores, size).items() for place in flat.tolist()}
        assert found == {places[row] for row in order[:size]}


def test_a_large_parameter_has_the_same_mean_and_spread_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = ReferenceBackend(mlp([40, 30, 3], seed=0))
    address = Address(backend.layers[0].name, "weight", (2, 3))
    whole = Selection.of(backend, [address])
    monkeypatch.setattr("arachne.weights.selection.MAX_SUMMARISED_WHOLE", 10)
    monkeypatch.setattr("arachne.weights.selection.BLOCK", 64)
    blocks = Selection.of(backend, [address])
    for name in ("values", "means", "deviations", "lowest", "highest"):
        np.testing.assert_allclose(getattr(blocks, name), getattr(whole, name), rtol=1e-12)
