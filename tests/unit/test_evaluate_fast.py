"""The fast evaluator takes the plain one's decisions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arachne.errors import UsageError
from arachne.model.values import Array
from arachne.scoring.evaluators import FastEvaluator, PlainEvaluator, make_evaluator
from arachne.scoring.fast.local import MIN_WHOLE_EVALUATIONS
from arachne.scoring.fast.reference_scores import SUBSET_SIZES
from arachne.testing import (
    Network,
    ReferenceBackend,
    branches,
    convnet,
    mlp,
    random_inputs,
    residual,
    shared_layer,
    two_inputs,
)
from benchmarks.exactness import REFERENCE, Findings, check
from tests.unit.evaluating import (
    Lying,
    Plainest,
    Rounding,
    Silent,
    assert_same_about_overflow,
    assert_same_search,
    fitness_inputs_of,
    search,
    some_suspects,
)

NETWORKS = {
    "mlp": (mlp([6, 9, 7, 4], seed=1), ("fc1", "fc2", "fc3")),
    "tanh": (mlp([5, 8, 3], seed=2, activation="tanh"), ("fc1", "fc2")),
    "sigmoid": (mlp([5, 12, 12, 12, 3], seed=2, activation="sigmoid"), ("fc1", "fc3", "fc4")),
    "convnet": (convnet(channels=2, seed=3), ("conv1", "conv2", "fc1", "fc2")),
    "residual": (residual(seed=4), ("stem", "inner1", "inner2", "head")),
    "branches": (branches(seed=5), ("stem", "left", "right", "head")),
    "shared": (shared_layer(seed=6), ("twice", "head")),
    "two inputs": (two_inputs(seed=7), ("see", "know", "head")),
}


def both(
    network: Network, layers: list[str], *, n: int = 150, k: int = 4, seed: int = 0, kind: type = ReferenceBackend
) -> tuple[PlainEvaluator, FastEvaluator]:
    backend = kind(network)
    fitness_inputs = fitness_inputs_of(backend, random_inputs(network, n, seed=seed), n, seed=seed)
    suspects = some_suspects(backend, layers, k, seed=seed)
    return PlainEvaluator(backend, fitness_inputs, suspects), FastEvaluator(backend, fitness_inputs, suspects)


@settings(max_examples=25)
@given(data=st.data())
def test_random_searches_over_random_networks_accept_the_same_trials(data: st.DataObject) -> None:
    network, layers = NETWORKS[data.draw(st.sampled_from(sorted(NETWORKS)))]
    chosen = data.draw(st.lists(st.sampled_from(layers), min_size=1, max_size=3, unique=True))
    seed = data.draw(st.integers(0, 2**20))
    n, k = data.draw(st.integers(2, 120)), data.draw(st.integers(0, 8))
    kind = data.draw(st.sampled_from([ReferenceBackend, Silent, Plainest, Lying, Rounding]))
    plain, fast = both(network, chosen, n=n, k=k, seed=seed, kind=kind)
    start = data.draw(st.sampled_from(["gaussian", "near"]))
    assert_same_search(plain, fast, seed=seed, population=8, generations=12, start=start, clip=seed % 2 == 0)


def test_nasty_cases_are_decided_as_by_the_plain_evaluator_and_bounds_hold() -> None:
    findings = Findings()
    for seed in range(60):
        check(seed, REFERENCE, findings)
    assert findings.failed == []
    assert findings.decisions > 1000


@settings(max_examples=25)
@given(seed=st.integers(0, 2**20), step=st.sampled_from([0.0, 1e-7, 1e-6, 1e-5, 1e-3]))
def test_populations_within_rounding_of_each_other_are_decided_as_by_the_plain_evaluator(
    seed: int, step: float
) -> None:
    plain, fast = both(mlp([20, 30, 5], seed=seed), ["fc1", "fc2"], n=200, k=6, seed=seed)
    rng = np.random.default_rng(seed)
    crowd = plain.suspects.values * (1 + step * rng.standard_normal((40, len(plain.suspects))))
    members = crowd.astype(np.float32).astype(np.float64)
    parents, trials = members[:20], members[20:]
    totals = plain.evaluate(parents).sum(axis=1)
    limits = fast.compare_with_parents(parents, parents, None).sum(axis=1)
    assert limits.min() == totals.min()
    assert np.argmin(limits) == np.argmin(totals)
    expected = plain.evaluate(trials).sum(axis=1) <= totals
    assert ((fast.compare_with_parents(trials, parents, limits).sum(axis=1) <= limits) == expected).all()


@pytest.mark.parametrize(
    ("network", "layers", "route"),
    [
        ("mlp", ["fc3"], "dense tail"),
        ("mlp", ["fc1", "fc3"], "dense tail"),
        ("convnet", ["fc1", "fc2"], "dense tail"),
        ("convnet", ["conv1"], "channels, convolution|cut"),
        ("convnet", ["conv2"], "channels, dense tail"),
        ("convnet", ["conv2", "fc1"], "channels, dense tail"),
        ("convnet", ["conv1", "fc1"], "cut"),
        ("residual", ["inner1"], "cut"),
        ("residual", ["head"], "dense tail"),
        ("shared", ["twice"], "cut"),
    ],
)
def test_route_is_chosen_from_where_the_suspects_are(network: str, layers: list[str], route: str) -> None:
    plain, fast = both(NETWORKS[network][0], layers)
    assert fast.source.route.name in route.split("|")
    assert_same_search(plain, fast, population=12, generations=15)


@pytest.mark.parametrize(("kind", "route"), [(ReferenceBackend, "channels, dense tail"), (Silent, "cut")])
def test_grouped_and_strided_convolutions_keep_their_decisions(kind: type, route: str) -> None:
    plain, fast = both(make_strided(), ["conv"], n=100, k=8, kind=kind)
    assert fast.source.route.name in route.split("|")
    assert_same_search(plain, fast, population=12, generations=15)


def make_strided() -> Network:
    from arachne.testing.networks import dense
    from arachne.testing.nodes import Conv, Flatten, Relu

    rng = np.random.default_rng(0)
    weight = rng.normal(size=(6, 2, 3, 2)).astype(np.float32)
    bias = rng.normal(size=6).astype(np.float32)
    conv = Conv("conv", "input", weight, bias, (2, 1), ((1, 2), (0, 1)), (1, 2), 2)
    rows, columns = (7 + 3 - 3) // 2 + 1, 9 + 1 - 3 + 1
    nodes = (conv, Relu("relu", "conv"), Flatten("flat", "relu"), dense("head", "flat", 6 * rows * columns, 3, rng))
    return Network({"input": (4, 7, 9)}, nodes)


def test_inputs_that_may_be_wrong_are_evaluated_without_the_others_where_that_gives_the_same_bits() -> None:
    plain, fast = both(mlp([20, 30, 5], seed=3), ["fc2"], n=1000, k=0)
    assert fast.source.reference.has_subsets
    labels = fast.fitness_inputs.labels

    def margins(step: Array) -> Array:
        scores = fast.scores(step)
        own = scores[np.arange(len(labels)), labels]
        scores[np.arange(len(labels)), labels] = -np.inf
        return np.asarray(own - scores.max(axis=1))

    # Between two values of a weight at which an input is right and wrong lies one at which two of its classes tie.
    low, high = np.array([-100.0]), np.array([100.0])
    row = int(np.argmin(margins(low) * margins(high)))
    assert margins(low)[row] * margins(high)[row] < 0
    for _ in range(60):
        tie = ((low + high) / 2).astype(np.float32).astype(np.float64)
        low, high = (tie, high) if margins(tie)[row] * margins(low)[row] > 0 else (low, tie)
    members = (tie * (1 + np.arange(-20, 20)[:, None] * 6e-8)).astype(np.float32).astype(np.float64)
    parents, trials = members[::2], members[1::2]
    totals = plain.evaluate(parents).sum(axis=1)
    limits = fast.compare_with_parents(parents, parents, None).sum(axis=1)
    won = fast.compare_with_parents(trials, parents, limits).sum(axis=1) <= limits
    assert np.array_equal(won, plain.evaluate(trials).sum(axis=1) <= totals)
    assert fast.source.reference.subset_passes > 0


def test_backend_that_is_wrong_about_what_follows_a_layer_is_not_believed() -> None:
    plain, fast = both(mlp([6, 9, 4], seed=1), ["fc1"], kind=Lying)
    assert fast.source.route.name == "cut"
    assert_same_search(plain, fast, population=12, generations=15)


def test_cut_that_differs_by_a_bit_does_not_stand_in_for_a_full_pass() -> None:
    _, exact = both(mlp([6, 9, 4], seed=1), ["fc2"])
    plain, fast = both(mlp([6, 9, 4], seed=1), ["fc2"], kind=Rounding)
    assert exact.source.reference.by_cut
    assert not fast.source.reference.by_cut
    assert_same_search(plain, fast, population=12, generations=15)


def test_evaluate_gives_the_plain_deficits_of_everything_within_its_limit() -> None:
    plain, fast = both(mlp([6, 9, 4], seed=1), ["fc1", "fc2"], k=6)
    rng = np.random.default_rng(0)
    trials = (plain.suspects.values + rng.standard_normal((50, len(plain.suspects)))).astype(np.float32).astype(float)
    expected = plain.evaluate(trials)
    limits = rng.permutation(expected.sum(axis=1))
    limits[:10] = expected[:10].sum(axis=1)
    found = fast.evaluate(trials, limits)
    within = expected.sum(axis=1) <= limits
    assert 10 <= within.sum() < 50
    assert np.array_equal(found[within], expected[within])
    assert (found[~within].sum(axis=1) > limits[~within]).all()
    assert np.array_equal(fast.evaluate(trials), expected)


def test_limits_by_term_give_the_plain_deficits_of_everything_within_all_of_them() -> None:
    plain, fast = both(mlp([6, 9, 4], seed=1), ["fc2"], k=6)
    rng = np.random.default_rng(0)
    trials = (plain.suspects.values + rng.standard_normal((50, len(plain.suspects)))).astype(np.float32).astype(float)
    expected = plain.evaluate(trials)
    limits = np.tile(np.median(expected, axis=0).astype(np.int64), (50, 1))
    found = fast.evaluate(trials, limits)
    within = (expected <= limits).all(axis=1)
    assert within.any()
    assert np.array_equal(found[within], expected[within])
    assert (found[~within] > limits[~within]).any(axis=1).all()


@pytest.mark.parametrize("layers", [["fc2"], ["fc1"], ["fc1", "fc2"]])
def test_candidates_that_overflow_are_judged_as_by_the_plain_evaluator(layers: list[str]) -> None:
    plain, fast = both(mlp([6, 9, 4], seed=1), layers)
    assert_same_about_overflow(plain, fast, (np.inf, -np.inf, 3e38, -3e38, 1e30, 1e12, 0.0))


@pytest.mark.parametrize(
    ("network", "layers", "memory"),
    [("convnet", ["conv1"], 200_000), ("residual", ["inner1"], 4_000), ("mlp", ["fc2"], 2_000)],
)
def test_inputs_beyond_the_memory_budget_are_computed_again_with_the_same_decisions(
    network: str, layers: list[str], memory: int
) -> None:
    plain, _ = both(NETWORKS[network][0], layers)
    small = FastEvaluator(plain.backend, plain.fitness_inputs, plain.suspects, memory=memory)
    assert small.source.cuts.whole is None
    assert small.source.route.name == "cut"
    made = small.source.cuts.made
    assert_same_search(plain, small, population=6, generations=5)
    assert small.source.cuts.made > made


def test_rejected_trials_are_given_up_early_and_few_trials_are_evaluated_plainly() -> None:
    _, fast = both(mlp([20, 40, 5], seed=0), ["fc2"], n=3000, k=5)
    result, accepted = search(fast, population=20, generations=40)
    whole = 20 + sum(map(sum, accepted))
    rejected = result.history[-1].evaluations - whole
    assert fast.source.looked_at / len(fast.fitness_inputs.labels) - whole < 0.4 * rejected
    assert fast.source.plain_evaluations < 0.05 * result.history[-1].evaluations


def test_search_gives_the_model_back_as_it_was() -> None:
    _, fast = both(mlp([6, 9, 4], seed=1), ["fc1", "fc2"], kind=Rounding)
    before = {layer: fast.backend.get_weights(layer) for layer in ("fc1", "fc2")}
    search(fast, population=10, generations=10)
    for layer, weights in before.items():
        for parameter, values in weights.items():
            assert np.array_equal(fast.backend.get_weights(layer)[parameter], values)


def test_half_precision_weights_keep_their_decisions() -> None:
    network = mlp([6, 9, 4], seed=1)
    backend = ReferenceBackend(network, dtype="float16")
    fitness_inputs = fitness_inputs_of(backend, random_inputs(network, 100), 100)
    suspects = some_suspects(backend, ["fc1", "fc2"], 4)
    assert_same_search(
        PlainEvaluator(backend, fitness_inputs, suspects),
        FastEvaluator(backend, fitness_inputs, suspects),
        population=10,
        generations=10,
    )


@pytest.mark.parametrize("layers", [["fc1"], ["fc1", "fc2"]])
def test_thousands_of_suspects_are_judged_in_small_blocks_with_the_same_decisions(layers: list[str]) -> None:
    network = mlp([200, 300, 5], seed=1)
    _, few = both(network, layers, k=4)
    plain, fast = both(network, layers, k=2000)
    assert fast.source.route.name == "dense tail"
    assert fast.source.route.block < few.source.route.block == type(few.source.route).block
    assert_same_search(plain, fast, population=6, generations=4, start="near")


def test_evaluator_is_made_by_name() -> None:
    plain, _ = both(mlp([4, 3], seed=0), ["fc1"])
    parts = plain.backend, plain.fitness_inputs, plain.suspects
    assert isinstance(make_evaluator("plain", *parts), PlainEvaluator)
    assert isinstance(make_evaluator("fast", *parts), FastEvaluator)
    with pytest.raises(UsageError, match="did you mean 'fast'"):
        make_evaluator("fats", *parts)


def rows_are_multiplied_alike() -> bool:
    """Tell whether some rows of a matrix product have the same bits as in the product of all."""
    rng = np.random.default_rng(0)
    inputs, weights = rng.standard_normal((1024, 20), np.float32), rng.standard_normal((20, 30), np.float32)
    whole, shuffled = inputs @ weights, rng.permutation(1024)
    parts = (shuffled[:size] for size in SUBSET_SIZES)
    return any(np.array_equal(inputs[rows] @ weights, whole[rows]) for rows in parts)


def test_last_inputs_of_an_odd_number_can_be_evaluated_without_the_others_too() -> None:
    """Vectorised functions handle the last few numbers of an array differently; padding makes sure there are none."""
    plain, fast = both(mlp([20, 30, 5], seed=3, activation="tanh"), ["fc1"], n=1001, k=4)
    if not rows_are_multiplied_alike():
        assert not fast.source.reference.has_subsets
        pytest.skip("on this processor a matrix product gives some rows other bits without the others")
    assert fast.source.reference.has_subsets
    rows = np.arange(1001)[::-1]
    for seed in range(5):
        noise = np.random.default_rng(seed).standard_normal(len(plain.suspects))
        trial = plain.suspects.values + plain.suspects.deviations * noise
        trial = trial.astype(np.float32).astype(np.float64)
        assert np.array_equal(fast.source.reference.of_rows(trial, rows), plain.scores(trial)[rows])


def test_route_as_costly_as_the_plain_evaluator_is_not_asked_which_inputs_may_be_wrong() -> None:
    plain, fast = both(NETWORKS["residual"][0], ["inner1"], n=300)
    assert fast.source.route.name == "cut"
    assert fast.source.reference.has_subsets
    assert_same_search(plain, fast, population=12, generations=15)
    assert fast.source.reference.whole_passes > MIN_WHOLE_EVALUATIONS
    assert fast.source.reference.subset_passes == 0
