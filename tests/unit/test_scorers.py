"""Scores and gradients by the suspects' values: the NumPy tail against a cut, and both against a changed model."""

from __future__ import annotations

import numpy as np
import pytest

from arachne.decisions.losses import cross_entropy
from arachne.model.lazy import LazyArray
from arachne.model.values import Address, Array
from arachne.scoring import tail_cache, threads
from arachne.scoring.cut import Cuts, CutScorer
from arachne.scoring.dense_tail import DenseTailScorer, make_scorer
from arachne.scoring.functions import FUNCTIONS, SLOPES
from arachne.scoring.tail_cache import TailCache
from arachne.testing import ReferenceBackend, mlp, random_inputs
from arachne.weights.selection import Selection

NETWORK = mlp([8, 12, 7, 4], seed=0)
ADDRESSES = [
    *(Address("fc1", "weight", (i, j)) for i in (1, 4, 11) for j in (0, 5)),
    Address("fc1", "bias", (4,)),
    *(Address("fc2", "weight", (i, 2 * i)) for i in range(5)),
    Address("fc2", "bias", (3,)),
    Address("fc3", "weight", (1, 4)),
    Address("fc3", "bias", (0,)),
]


@pytest.fixture(scope="module")
def backend() -> ReferenceBackend:
    return ReferenceBackend(NETWORK)


@pytest.mark.parametrize("addresses", [ADDRESSES, ADDRESSES[7:], ADDRESSES[-2:]], ids=["three", "two", "last"])
def test_a_dense_tail_in_numpy_agrees_with_a_cut(backend: ReferenceBackend, addresses: list[Address]) -> None:
    rng = np.random.default_rng(0)
    inputs, suspects = random_inputs(NETWORK, 700, seed=1), Selection.of(backend, addresses)
    fast, plain = make_scorer(backend, inputs, suspects), CutScorer(backend, Cuts(backend, inputs), suspects)
    assert isinstance(fast, DenseTailScorer)
    values = suspects.values + 0.2 * rng.normal(size=len(suspects))
    rows = rng.permutation(700)[:600]
    labels = rng.integers(4, size=600)
    np.testing.assert_allclose(fast.scores(values, rows), plain.scores(values, rows), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        fast.gradients(values, cross_entropy(labels), rows),
        plain.gradients(values, cross_entropy(labels), rows),
        rtol=1e-3,
        atol=1e-6,
    )


@pytest.mark.parametrize("unit", [3, slice(None)], ids=["one unit", "all"])
def test_what_enters_wide_layers_is_copied_when_read_with_the_same_bits(
    backend: ReferenceBackend, monkeypatch: pytest.MonkeyPatch, unit: int | slice
) -> None:
    inputs, rng = random_inputs(NETWORK, 700, seed=1), np.random.default_rng(0)
    units, rows = np.arange(12)[unit].reshape(-1), rng.permutation(500)[:400]
    chosen = {("fc1", "weight"): (units[:, None] * 8 + np.arange(8)).ravel(), ("fc1", "bias"): units}
    suspects, labels = Selection.at(backend, chosen), rng.integers(4, size=400)
    values = suspects.values + 0.2 * rng.normal(size=len(suspects))
    whole = TailCache.of(backend, inputs)
    assert whole is not None
    taken = rng.permutation(700)[:500]
    entering = np.concatenate([np.ones((500, 1), np.float32), whole.entering("fc1")[taken]], axis=1)

    def run(*, when_read: bool) -> tuple[Array, Array]:
        scorer = DenseTailScorer.of(backend, suspects, whole.take(taken))
        assert scorer is not None
        assert isinstance(scorer._sources, LazyArray) is when_read
        assert np.array_equal(scorer._sources[:], entering)
        return scorer.scores(values, rows), scorer.gradients(values, cross_entropy(labels), rows)

    at_once = run(when_read=False)
    monkeypatch.setattr(tail_cache, "SPILL_COLUMNS_ABOVE_BYTES", 0)
    assert all(np.array_equal(*both) for both in zip(at_once, run(when_read=True), strict=True))


def test_products_of_a_step_run_on_one_thread(backend: ReferenceBackend) -> None:
    switches = threads._switches()
    if len(switches) < 2:
        pytest.skip("NumPy or SciPy has no OpenBLAS of its own")
    inputs, suspects = random_inputs(NETWORK, 40, seed=1), Selection.of(backend, ADDRESSES)
    seen = []

    def loss(scores: Array, _: object) -> Array:
        seen.append([get() for get, _ in switches])
        return np.ones_like(scores)

    before = [get() for get, _ in switches]
    try:
        for _, put in switches:
            put(2)
        make_scorer(backend, inputs, suspects).gradients(suspects.values, loss, np.arange(40))
        assert (seen, [get() for get, _ in switches]) == ([[1, 1]], [2, 2])
    finally:
        for (_, put), number in zip(switches, before, strict=True):
            put(number)


def test_a_cut_is_shared_by_weights_that_begin_at_the_same_layer(backend: ReferenceBackend) -> None:
    inputs = random_inputs(NETWORK, 50, seed=1)
    cuts, rows = Cuts(backend, inputs), np.array([7, 3, 30])
    three, first, last = (Selection.of(backend, one) for one in (ADDRESSES, ADDRESSES[:1], ADDRESSES[-2:]))
    assert cuts.at(three.layers) is cuts.at(first.layers)
    assert cuts.at(three.layers) is not cuts.at(last.layers)  # what lies between would be computed every time
    own, some = CutScorer(backend, Cuts(backend, inputs), last), CutScorer(backend, cuts, last, rows)
    values = last.values + 0.3
    np.testing.assert_allclose(some.scores(values, np.arange(3)), own.scores(values, rows), rtol=1e-6)
    labels = cross_entropy(np.array([0, 1, 2]))
    found, expected = some.gradients(values, labels, np.arange(3)), own.gradients(values, labels, rows)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)


def test_scores_are_those_of_the_changed_model(backend: ReferenceBackend) -> None:
    inputs, suspects = random_inputs(NETWORK, 40, seed=1), Selection.of(backend, ADDRESSES)
    values = suspects.values + 0.1
    changed = ReferenceBackend(NETWORK)
    for place in suspects.slices:
        whole = changed.get_weights(place.layer)[place.parameter]
        whole[place.index] = values[place.numbers]
        changed.set_weights(place.layer, place.parameter, whole)
    for tunable in (make_scorer(backend, inputs, suspects), CutScorer(backend, Cuts(backend, inputs), suspects)):
        np.testing.assert_allclose(tunable.scores(values, np.arange(40)), changed.forward(inputs), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_slope_of_every_function_is_its_derivative(name: str) -> None:
    function, x = FUNCTIONS[name], np.linspace(-7.03, 7.01, 400)
    numeric = (function(x + 1e-6) - function(x - 1e-6)) / 2e-6
    np.testing.assert_allclose(SLOPES[function](x), numeric, atol=1e-4)
