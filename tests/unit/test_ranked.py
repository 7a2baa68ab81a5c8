"""The largest scores over many parameters, block by block, are those of all of them together."""

from __future__ import annotations

import numpy as np
import pytest

from arachne.data.labelled import LabelledData
from arachne.data.run import whole_part
from arachne.localise import Contrast, Fisher, ranked
from arachne.localise.ranked import first_largest, largest
from arachne.model.values import Address
from arachne.tasks import Tokens
from arachne.testing import Network, ReferenceBackend, mlp
from arachne.testing.networks import dense
from arachne.testing.nodes import Flatten, Node, Relu
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


def blocks_of_steps(*, head: bool) -> ReferenceBackend:
    """Two dense layers at each of three steps, and with a head two more behind all of these."""
    rng = np.random.default_rng(0)
    nodes: list[Node] = [dense("first", "x", 4, 5, rng), Relu("relu", "first"), dense("second", "relu", 5, 4, rng)]
    if head:
        nodes += [Flatten("flat", "second"), dense("fc", "flat", 12, 6, rng), Relu("fc.relu", "fc")]
        nodes.append(dense("head", "fc.relu", 6, 3, rng))
    return ReferenceBackend(Network({"x": (3, 4)}, tuple(nodes)))


@pytest.mark.parametrize("localiser", [Contrast(), Fisher()])
def test_dense_layers_that_work_on_every_step_are_not_in_the_tail_of_those_that_work_on_vectors(
    localiser: ranked.Ranked,
) -> None:
    backend, rng = blocks_of_steps(head=True), np.random.default_rng(0)
    data = LabelledData(rng.standard_normal((40, 3, 4), np.float32), rng.integers(0, 3, 40))
    part = whole_part(backend, data, "*:*")
    assert {layer for layer, _ in localiser.scores(backend, part, rng=rng)} == {"fc", "head"}
    deep = Contrast(depth="all").scores(backend, part, rng=rng)
    assert {layer for layer, _ in deep} == {"first", "second", "fc", "head"}


def test_the_tail_of_a_model_that_works_on_steps_to_its_end_is_all_of_its_dense_layers() -> None:
    backend, rng = blocks_of_steps(head=False), np.random.default_rng(0)
    data = LabelledData(rng.standard_normal((40, 3, 4), np.float32), rng.integers(0, 4, (40, 3)))
    part = whole_part(backend, data, "*:*", task=Tokens())
    assert {layer for layer, _ in Contrast().scores(backend, part, rng=rng)} == {"first", "second"}
