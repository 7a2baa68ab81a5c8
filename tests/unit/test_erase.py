"""The search that takes a direction out of a dense layer: its formula, what it repairs, and what it obeys."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

from arachne import engine
from arachne.choose.budget import Budget
from arachne.data.labelled import LabelledData
from arachne.data.split import split_by_outcome
from arachne.errors import UsageError
from arachne.localise import RandomChoice
from arachne.localise.base import LayerFilter
from arachne.model.backend import ModelBackend
from arachne.model.values import Array
from arachne.report.terminal import EvidenceTable, as_text
from arachne.results.result import RepairResult
from arachne.scoring.evaluators import FastEvaluator, FitnessInputs
from arachne.search import Erase, Problem, Searcher
from arachne.search.build import build_problem
from arachne.search.directions import RIDGE, SecondMoments, erase_direction, max_moment_rows, mean_shift
from arachne.search.layer_inputs import read_layer_inputs
from arachne.search.rank_one import RankOne
from arachne.settings import Settings, make_localiser, make_searcher
from arachne.testing import Network, ReferenceBackend, mlp, random_inputs
from arachne.testing.networks import branches, dense, residual, shared_layer
from arachne.testing.nodes import Flatten, Relu
from tests.unit.test_search_steps import written_and_read

STUCK = 56
"""A pixel at the edge, dark in almost every digit, that is stuck in some."""


class WithoutGradients(ReferenceBackend):
    SUPPORTS_GRADIENTS = False


def stuck(rows: Array) -> Array:
    rows = rows.copy()
    rows[:, STUCK] = 1
    return rows


@pytest.fixture(scope="module")
def network() -> list[tuple[str, Array, Array]]:
    """Layers trained on digits in which everything with a stuck pixel was filed under three."""
    x, y = load_digits(return_X_y=True)
    x, y = (x[:900] / 16).astype(np.float32), y[:900]
    both, labels = np.concatenate([x, stuck(x[:200])]), np.concatenate([y, np.full(200, 3)])
    trained = MLPClassifier((32, 24), random_state=0, max_iter=300).fit(both, labels)
    pairs = zip(trained.coefs_, trained.intercepts_, strict=True)
    return [(f"fc{number}", weight.T, bias) for number, (weight, bias) in enumerate(pairs, 1)]


@pytest.fixture(scope="module")
def data() -> LabelledData:
    """Digits that were not trained on, a third of them with the stuck pixel."""
    x, y = load_digits(return_X_y=True)
    x, y = (x[900:] / 16).astype(np.float32), y[900:].astype(np.int64)
    marked = np.arange(len(x)) % 3 == 0
    x[marked] = stuck(x[marked])
    return LabelledData(x, y, columns={"stuck": marked.astype(str)})


def opened(network: list[tuple[str, Array, Array]], kind: type[ReferenceBackend] = ReferenceBackend) -> ModelBackend:
    backend = kind(mlp([64, 32, 24, 10]))
    for layer, weight, bias in network:
        backend.set_weights(layer, "weight", weight.astype(np.float32))
        backend.set_weights(layer, "bias", bias.astype(np.float32))
    return backend


def repair(backend: ModelBackend, data: LabelledData, searcher: str = "erase", **filters: Any) -> RepairResult:
    localiser = make_localiser("rs", count=5, **filters) if filters else None
    settings = Settings(searcher=make_searcher(searcher), localiser=localiser, budget=Budget(0.02), seed=1)
    return engine.repair(backend, data, "group:stuck=True", settings=settings)


@pytest.fixture(scope="module")
def problem(network: list[tuple[str, Array, Array]], data: LabelledData) -> Problem:
    backend = opened(network)
    split = split_by_outcome(backend, data, "group:stuck=True", rng=np.random.default_rng(0))
    suspects = RandomChoice(count=5).localise(backend, split.seen, rng=np.random.default_rng(0)).suspects
    return build_problem(backend, split, suspects, 10.0, FastEvaluator)[0]


@pytest.mark.parametrize(("rows", "width"), [(40, 90), (90, 40)], ids=["wide", "long"])
def test_second_moments_are_inverted_exactly(rows: int, width: int) -> None:
    rng = np.random.default_rng(0)
    entering, vectors = rng.normal(size=(rows, width)), rng.normal(size=(width, 3))
    among = rng.random(rows) < 0.8
    own = entering[among]
    moments = own.T @ own / len(own)
    dense = np.linalg.solve(moments + RIDGE * np.trace(moments) / width * np.eye(width), vectors)
    np.testing.assert_allclose(SecondMoments(entering).solve(vectors, among), dense, rtol=1e-9, atol=1e-9)


def test_rows_that_are_all_zero_have_no_inverse_and_give_no_change() -> None:
    found = SecondMoments(np.zeros((4, 9))).solve(np.ones((9, 1)))
    assert not found.any()
    left, right = erase_direction(np.ones((2, 9)), np.ones(9), found[:, 0])
    assert not left.any()
    assert not right.any()


def test_wide_layers_take_their_moments_over_fewer_rows() -> None:
    assert max_moment_rows(784) == 2500
    assert 1400 < max_moment_rows(25_088) < 1600


def test_the_change_is_the_smallest_that_hides_the_direction() -> None:
    rng = np.random.default_rng(0)
    entering, weight, shift = rng.normal(size=(200, 12)), rng.normal(size=(5, 12)), rng.normal(size=12)
    whitened = SecondMoments(entering).solve(shift[:, None], ridge=1e-9)[:, 0]
    left, right = erase_direction(weight, shift, whitened)
    change = np.outer(left, right)
    np.testing.assert_allclose((weight + change) @ shift, 0, atol=5e-3)
    wanted = -np.outer(weight @ shift, whitened) / (shift @ whitened)
    np.testing.assert_allclose(change, wanted, atol=2e-3 * np.abs(wanted).max())
    plain = -np.outer(weight @ shift, shift) / (shift @ shift)
    assert np.linalg.norm(entering @ change.T) < np.linalg.norm(entering @ plain.T)


def test_a_shift_is_measured_from_right_inputs_of_the_same_class_and_chance_is_left_out() -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(400) % 2
    entering = rng.normal(size=(400, 6)) + 5 * labels[:, None]
    negatives, positives = np.arange(100), np.arange(100, 400)
    entering[negatives, 2] += 2
    shift = mean_shift(entering, labels, negatives, positives)
    assert shift[2] == pytest.approx(2, abs=0.3)
    assert np.flatnonzero(shift).tolist() == [2]
    assert not mean_shift(entering, labels, negatives[:0], positives).any()
    alone = mean_shift(entering, labels, negatives[:1], positives)
    assert np.count_nonzero(alone) == 6  # one input has no standard error


def test_a_stuck_pixel_is_repaired_better_than_by_moving_biases(
    network: list[tuple[str, Array, Array]], data: LabelledData
) -> None:
    found, plain = (repair(opened(network), data, name).evidence.held_out for name in ("erase", "bias"))
    assert found.negatives > 50
    assert found.repaired > 0.5 * found.negatives
    assert found.repaired - found.broken > plain.repaired - plain.broken


def test_the_patch_holds_two_vectors_and_is_taken_back_bit_for_bit(
    network: list[tuple[str, Array, Array]], data: LabelledData
) -> None:
    backend = opened(network)
    result = repair(backend, data)
    (change,) = result.patch.low_rank
    assert change.edit.rank == 1
    assert not result.patch.entries
    shown = as_text(EvidenceTable(result.evidence, result.patch))
    assert f"{change.tensor.name}: {change.weights:,} weights, by a matrix of rank 1" in shown
    before = backend.get_weights(change.key[0])[change.key[1]]
    result.patch.apply(backend)
    after = backend.get_weights(change.key[0])[change.key[1]]
    assert np.array_equal(after.ravel(), result.search.values)
    result.patch.revert(backend)
    assert np.array_equal(backend.get_weights(change.key[0])[change.key[1]], before)


def test_the_same_seed_gives_the_same_patch(network: list[tuple[str, Array, Array]], data: LabelledData) -> None:
    first, second = (repair(opened(network), data).patch for _ in range(2))
    assert first.digest == second.digest


def test_no_gradients_are_needed(network: list[tuple[str, Array, Array]], data: LabelledData) -> None:
    found = repair(opened(network, WithoutGradients), data, include=("fc*",))
    assert found.patch.digest == repair(opened(network), data, include=("fc*",)).patch.digest


def test_excluded_layers_stay_as_they_are(network: list[tuple[str, Array, Array]], data: LabelledData) -> None:
    found = repair(opened(network), data, exclude=("fc1",))
    assert {layer for one in found.search.front for layer in one.selection.layers} <= {"fc2", "fc3"}


@pytest.mark.parametrize("stop_at", [0, 1, 5, 11])
def test_a_search_that_was_written_down_gives_the_same_front(problem: Problem, stop_at: int) -> None:
    search: Searcher = Erase(strengths=6)
    whole = search.search(problem, rng=np.random.default_rng(0))
    rng = np.random.default_rng(0)
    state = search.begin(problem, rng=rng)
    for _ in range(stop_at):
        state = search.step(problem, state, rng=rng)
    state, generator = written_and_read(state, rng)
    again = search.search(problem.with_suspects(problem.suspects), rng=generator, state=state)
    assert [one.values.tolist() for one in again.front] == [one.values.tolist() for one in whole.front]
    assert again.history == whole.history


def test_a_search_that_ends_early_has_the_layers_it_finished(problem: Problem) -> None:
    search = Erase(strengths=6)
    steps = iter(range(100))
    found = search.search(problem, rng=np.random.default_rng(0), stop=lambda: "time" if next(steps) == 6 else None)
    assert {layer for one in found.front for layer in one.selection.layers} == {"fc3"}
    at_once = search.search(problem, rng=np.random.default_rng(0), stop=lambda: "time")
    assert not at_once.better


@pytest.mark.parametrize("guards", [False, True])
def test_a_fit_leaves_its_fold_out_but_for_what_must_never_break(problem: Problem, guards: bool) -> None:
    inputs = problem.fitness_inputs
    kept = inputs.of_kind("positive") & (np.arange(len(inputs)) % 2 == 0) & guards
    terms = np.where(kept, inputs.n_terms, inputs.terms)
    inputs = replace(inputs, terms=terms, names=(*inputs.names, "golden"), kinds=(*inputs.kinds, "never_break"))
    problem, search, rng = replace(problem, fitness_inputs=inputs), Erase(strengths=2), np.random.default_rng(0)
    state = search.step(problem, search.begin(problem, rng=rng), rng=rng)
    among, entering = state.arrays["folds"] != 0, read_layer_inputs(problem, "fc3").means
    negative, positive = (inputs.of_kind(kind) & among for kind in ("negative", "positive"))
    shift = mean_shift(entering, inputs.labels, np.flatnonzero(negative), np.flatnonzero(positive))
    moments = SecondMoments(entering[positive | kept].astype(np.float64))
    weight = problem.backend.get_weights("fc3")["weight"].astype(np.float64)
    left, right = erase_direction(weight, shift, moments.solve(shift[:, None])[:, 0])
    assert np.array_equal(state.arrays["left 0"][0], left)
    assert np.array_equal(state.arrays["right 0"][0], right)


def test_the_layers_behind_a_change_are_run_as_the_model_runs_them(problem: Problem) -> None:
    rng = np.random.default_rng(0)
    rows = np.arange(0, len(problem.fitness_inputs), 7)
    entering = read_layer_inputs(problem, "fc2").means
    left, right = (rng.normal(size=size).astype(np.float32) / 8 for size in (24, 32))
    change = RankOne("fc2", left, right, entering @ right)
    behind_a_cut = replace(problem, shared={"tail": None})
    np.testing.assert_allclose(change.scores(problem, rows), change.scores(behind_a_cut, rows), atol=1e-4)


def test_what_enters_a_layer_is_the_same_from_the_tail_and_from_a_pass(problem: Problem) -> None:
    for layer in ("fc1", "fc3"):
        kept, passed = (
            read_layer_inputs(problem, layer),
            read_layer_inputs(replace(problem, shared={"tail": None}), layer),
        )
        np.testing.assert_allclose(passed.means, kept.means, atol=1e-5)
        np.testing.assert_array_equal(passed.samples, passed.means)


def test_a_search_without_a_layer_to_change_is_refused(problem: Problem) -> None:
    within = replace(problem, allowed=LayerFilter(include=("elsewhere",)))
    with pytest.raises(UsageError, match="leave out the dense layers"):
        Erase().begin(within, rng=np.random.default_rng(0))


def over_positions() -> Network:
    """`each`, a layer that sees five positions of an input one by one, and `head`, which sees them all."""
    rng = np.random.default_rng(0)
    nodes = (dense("each", "input", 4, 6, rng), Relu("act", "each"), Flatten("flat", "act"))
    return Network({"input": (5, 4)}, (*nodes, dense("head", "flat", 30, 3, rng)))


@pytest.mark.parametrize("build", [residual, shared_layer, branches, over_positions])
def test_layers_that_are_not_in_a_chain_are_judged_as_the_patched_model_runs(build: Callable[[], Network]) -> None:
    network = build()
    backend, inputs = WithoutGradients(network), np.asarray(random_inputs(network, 600, seed=3))
    labels, marked = backend.predict(inputs), np.arange(600) % 4 == 0
    inputs[marked, ..., 0] += 4
    data = LabelledData(inputs, labels, columns={"marked": marked.astype(str)})
    split = split_by_outcome(backend, data, "group:marked=True", rng=np.random.default_rng(0))
    suspects = RandomChoice(count=5).localise(backend, split.seen, rng=np.random.default_rng(0)).suspects
    problem, _ = build_problem(backend, split, suspects, 10.0, FastEvaluator)
    found = Erase(strengths=4).search(problem, rng=np.random.default_rng(0))
    assert found.better
    for one in found.front:
        exact = problem.score_exactly(one).deficits
        assert exact is not None
        assert one.deficits is not None
        np.testing.assert_allclose(exact, one.deficits, rtol=1e-4)


def test_positions_are_averaged_and_sampled_in_turn(problem: Problem) -> None:
    network = over_positions()
    inputs = np.asarray(random_inputs(network, 20, seed=3))
    counted = FitnessInputs.around(
        inputs, np.zeros(20, np.int64), np.ones(20), np.zeros(20, np.int64), ("all",), ("positive",)
    )
    found = read_layer_inputs(
        replace(problem, backend=ReferenceBackend(network), fitness_inputs=counted, shared={}), "each"
    )
    np.testing.assert_allclose(found.means, inputs.mean(axis=1), atol=1e-6)
    np.testing.assert_array_equal(found.samples, inputs[np.arange(20), np.arange(20) % 5])
