"""The route from a touched convolution into the next one gives the plain evaluator's decisions, or is not taken."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arachne.scoring.evaluators import FastEvaluator, PlainEvaluator
from arachne.scoring.fast.routes.channels_to_convolution import NextConvolutionRoute
from arachne.scoring.fast.routes.continuation import CutContinuation, DenseContinuation
from arachne.scoring.fast.routes.cut import CutRoute
from arachne.testing import Network, ReferenceBackend, convnet, random_inputs
from tests.unit.evaluating import (
    Lying,
    Plainest,
    Rounding,
    Silent,
    assert_same_about_overflow,
    assert_same_search,
    fitness_inputs_of,
    some_suspects,
)
from tests.unit.two_convolutions import two_convolutions

NAME = NextConvolutionRoute.name


@pytest.fixture
def preferred() -> Iterator[None]:
    """The route is taken wherever it is open: what is fastest on networks as small as these is nothing to rest on."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(CutRoute, "seconds", lambda self, trials: float(not isinstance(self, NextConvolutionRoute)))
        yield


def both(
    network: Network, *, n: int = 150, k: int = 6, seed: int = 0, kind: type = ReferenceBackend, memory: int = 2 << 30
) -> tuple[PlainEvaluator, FastEvaluator]:
    backend = kind(network)
    fitness_inputs = fitness_inputs_of(backend, random_inputs(network, n, seed=seed), n, seed=seed)
    suspects = some_suspects(backend, ["conv1"], k, seed=seed)
    return PlainEvaluator(backend, fitness_inputs, suspects), FastEvaluator(
        backend, fitness_inputs, suspects, memory=memory
    )


@pytest.mark.usefixtures("preferred")
@settings(max_examples=40)
@given(seed=st.integers(0, 2**20), axes=st.sampled_from([1, 2, 2]), third=st.booleans())
def test_random_geometries_accept_the_same_trials(seed: int, axes: int, third: bool) -> None:
    network = two_convolutions(seed, axes=axes, third=third)
    plain, fast = both(network, n=60, seed=seed)
    assert fast.source.route.name == NAME
    assert_same_search(plain, fast, seed=seed, population=8, generations=8)


@pytest.mark.usefixtures("preferred")
@pytest.mark.parametrize("seed", range(12))
def test_scores_are_the_plain_evaluators_up_to_rounding(seed: int) -> None:
    plain, fast = both(two_convolutions(seed, third=seed % 3 == 0), seed=seed)
    assert isinstance(fast.source.route, NextConvolutionRoute)
    rng = np.random.default_rng(seed)
    for order in (np.arange(150), rng.permutation(150), rng.permutation(150)):
        fast.source.route.reorder(order)
        trial = plain.suspects.values + rng.standard_normal(len(plain.suspects)).astype(np.float32)
        expected = plain.scores(trial)
        found, scale = fast.source.route.scores(trial)
        assert np.abs(found - expected).max() < 1e-5 * scale.max()
        some = fast.source.route.run(trial[None], slice(64, 100))[0]
        assert np.allclose(some, expected[fast.source.route.order[64:100]], rtol=0, atol=1e-5 * scale.max())


@pytest.mark.usefixtures("preferred")
@pytest.mark.parametrize(("third", "behind"), [(False, DenseContinuation), (True, CutContinuation)])
def test_dense_layers_are_gone_through_in_numpy_and_all_else_by_the_cut(third: bool, behind: type) -> None:
    _, fast = both(two_convolutions(3, third=third))
    assert isinstance(fast.source.route, NextConvolutionRoute)
    assert isinstance(fast.source.route.continuation, behind)
    assert fast.source.route.in_numpy is not third


@pytest.mark.usefixtures("preferred")
@pytest.mark.parametrize("kind", [Silent, Plainest, Lying, Rounding])
def test_backend_that_tells_nothing_or_lies_gets_another_route(kind: type) -> None:
    plain, fast = both(convnet(seed=3), kind=kind)
    assert fast.source.route.name != NAME
    assert_same_search(plain, fast, population=8, generations=8)


@pytest.mark.usefixtures("preferred")
def test_pooling_that_overlaps_is_left_to_another_route() -> None:
    plain, fast = both(two_convolutions(1, overlapping=True))
    assert fast.source.route.name != NAME
    assert_same_search(plain, fast, population=8, generations=8)


@pytest.mark.usefixtures("preferred")
def test_what_does_not_fit_the_budget_is_left_to_another_route() -> None:
    network = convnet(seed=3)
    plain, large = both(network)
    _, small = both(network, memory=400_000)
    assert large.source.route.name == NAME
    assert small.source.route.name != NAME
    assert_same_search(plain, small, population=8, generations=5)


@pytest.mark.usefixtures("preferred")
def test_second_layer_that_is_touched_too_is_left_to_another_route() -> None:
    network = convnet(seed=3)
    backend = ReferenceBackend(network)
    fitness_inputs = fitness_inputs_of(backend, random_inputs(network, 60), 60)
    suspects = some_suspects(backend, ["conv1", "conv2"], 6)
    fast = FastEvaluator(backend, fitness_inputs, suspects)
    assert fast.source.route.name == "cut"
    assert_same_search(PlainEvaluator(backend, fitness_inputs, suspects), fast, population=8, generations=8)


def test_fastest_of_all_open_routes_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    for fastest in (NAME, "cut"):
        monkeypatch.setattr(CutRoute, "seconds", lambda self, trials, name=fastest: float(self.name != name))
        assert both(convnet(seed=3))[1].source.route.name == fastest


@pytest.mark.usefixtures("preferred")
def test_candidates_that_overflow_are_judged_as_by_the_plain_evaluator() -> None:
    plain, fast = both(convnet(seed=3, activation="tanh"))
    assert fast.source.route.name == NAME
    assert_same_about_overflow(plain, fast, (np.inf, -np.inf, 3e38, -3e38, 1e30, 1e12, 1e6, 0.0))
