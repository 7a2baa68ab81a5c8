"""The searches for directions, closed and trained: their formulas, what they repair, and what they obey."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

from arachne import engine
from arachne.choose.budget import Budget
from arachne.data.labelled import LabelledData
from arachne.data.lazy.spill_file import RowBuffer
from arachne.data.split import split_by_outcome
from arachne.decisions.losses import margin
from arachne.errors import UsageError
from arachne.localise import RandomChoice
from arachne.localise.base import LayerFilter
from arachne.localise.linear_maps import Convolution
from arachne.model.backend import ModelBackend
from arachne.model.lazy import is_lazy, is_plain
from arachne.model.values import Activation, Array, take
from arachne.report.terminal import EvidenceTable, as_text
from arachne.results.reopen import open_repair
from arachne.results.result import RepairResult
from arachne.scoring.evaluators import FastEvaluator, FitnessInputs
from arachne.search import Erase, LowRank, Pool, Problem, Searcher
from arachne.search.build import build_problem
from arachne.search.direction_search import DirectionSearch, gather
from arachne.search.directions import RIDGE, SecondMoments, cut_rank, find_directions, max_moment_rows, on_grid
from arachne.search.layer_inputs import read_layer_inputs
from arachne.search.shifts import Kinds, Shifts
from arachne.search.state import Candidate, SearchState
from arachne.settings import Settings, make_localiser, make_searcher
from arachne.testing import Network, ReferenceBackend, mlp, random_inputs
from arachne.testing.networks import branches, dense, residual, shared_layer
from arachne.testing.nodes import Flatten, Relu
from tests.backends import golden
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


def open_network(
    network: list[tuple[str, Array, Array]], kind: type[ReferenceBackend] = ReferenceBackend
) -> ModelBackend:
    backend = kind(mlp([64, 32, 24, 10]))
    for layer, weight, bias in network:
        backend.set_weights(layer, "weight", weight.astype(np.float32))
        backend.set_weights(layer, "bias", bias.astype(np.float32))
    return backend


def change_of(candidate: Candidate) -> list[Any]:
    """Everything a candidate changes, as plain values."""
    if candidate.edit is None:
        return [candidate.selection.digest, candidate.values.tolist()]
    return [candidate.edit.key, candidate.edit.left.tolist(), candidate.edit.right.tolist()]


def repair(backend: ModelBackend, data: LabelledData, searcher: str = "erase", **filters: Any) -> RepairResult:
    localiser = make_localiser("rs", count=5, **filters) if filters else None
    settings = Settings(searcher=make_searcher(searcher), localiser=localiser, budget=Budget(0.02), seed=1)
    return engine.repair(backend, data, "group:stuck=True", settings=settings)


@pytest.fixture(scope="module")
def problem(network: list[tuple[str, Array, Array]], data: LabelledData) -> Problem:
    backend = open_network(network)
    split = split_by_outcome(backend, data, "group:stuck=True", rng=np.random.default_rng(0))
    suspects = RandomChoice(count=5).localise(backend, split.seen, rng=np.random.default_rng(0)).suspects
    return build_problem(backend, split, suspects, 10.0, FastEvaluator)


@pytest.mark.parametrize(("rows", "width"), [(40, 90), (90, 40)], ids=["wide", "long"])
def test_second_moments_are_inverted_exactly(rows: int, width: int) -> None:
    rng = np.random.default_rng(0)
    entering, vectors = rng.normal(size=(rows, width)), rng.normal(size=(width, 3))
    among = rng.random(rows) < 0.8
    own = entering[among]
    moments = own.T @ own / len(own)
    dense = np.linalg.solve(moments + RIDGE * np.trace(moments) / width * np.eye(width), vectors)
    found = SecondMoments(entering, np.where(among, np.arange(rows) % 3, 7))
    np.testing.assert_allclose(found.solve(vectors, 7), dense, rtol=1e-9, atol=1e-9)
    guarded = SecondMoments(entering, np.full(rows, -1))  # rows that are in no fold are never left out
    np.testing.assert_array_equal(guarded.solve(vectors), guarded.solve(vectors, 0))


@pytest.mark.parametrize(("rows", "width"), [(90, 20), (40, 300)])
def test_second_moments_of_rows_in_a_file_are_the_same_to_the_bit(
    rows: int, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arachne.search.directions.MAX_BLOCK_BYTES", 4 * width * 33)
    rng = np.random.default_rng(3)
    values, vectors = rng.standard_normal((rows, width)).astype(np.float32), rng.standard_normal((width, 2))
    buffer = RowBuffer(rows, width, spill=True, most=0)
    buffer[slice(0, rows)] = values
    assert is_lazy(buffer.array)
    folds = rng.integers(-1, 3, rows)
    held, in_file = SecondMoments(values.astype(np.float64), folds), SecondMoments(buffer.array, folds)
    for without in (-1, 0, 2):
        assert np.array_equal(held.solve(vectors, without), in_file.solve(vectors, without))
        columns = np.array([1, 4, 7])
        alone = SecondMoments(values[:, columns].astype(np.float64), folds).solve(vectors[columns], without)
        for moments in (held, in_file):
            assert np.array_equal(moments.narrow(columns).solve(vectors[columns], without), alone)
    assert np.array_equal(held.sizes, in_file.sizes)


def test_rows_that_are_all_zero_have_no_inverse_and_give_no_change() -> None:
    found = SecondMoments(np.zeros((4, 9)), np.zeros(4)).solve(np.ones((9, 1)))
    assert not found.any()
    directions, detectors = find_directions(np.ones((9, 1)), found)
    assert directions.shape == detectors.shape == (9, 0)


def test_wide_layers_take_their_moments_over_fewer_rows() -> None:
    assert max_moment_rows(784) == 2500
    assert 600 < max_moment_rows(25_088) < 700


def test_the_change_is_the_smallest_that_hides_the_direction() -> None:
    rng = np.random.default_rng(0)
    entering, weight, shifts = rng.normal(size=(200, 12)), rng.normal(size=(5, 12)), rng.normal(size=(12, 3))
    whitened = SecondMoments(entering, np.zeros(200)).solve(shifts, ridge=1e-9)
    directions, detectors = find_directions(shifts, whitened)
    np.testing.assert_allclose(detectors.T @ directions, np.eye(3), atol=1e-9)
    change = -(weight @ directions) @ detectors.T
    np.testing.assert_allclose((weight + change) @ shifts, 0, atol=1e-9)
    np.testing.assert_allclose(change, -weight @ shifts @ np.linalg.solve(shifts.T @ whitened, whitened.T), atol=1e-9)
    plain = -weight @ shifts @ np.linalg.pinv(shifts)
    assert np.linalg.norm(entering @ change.T) < np.linalg.norm(entering @ plain.T)
    left, right = on_grid(-(weight @ directions)), on_grid(detectors)
    np.testing.assert_allclose(left @ right.T, change, atol=2e-3 * np.abs(change).max())


def test_a_change_cut_to_fewer_directions_is_the_nearest_to_what_inputs_make_of_it() -> None:
    rng = np.random.default_rng(0)
    sizes = np.array([0.0, 1, 2, 30, 4, 5])
    left, right = rng.normal(size=(7, 4)), rng.normal(size=(6, 4))
    whole = cut_rank(left, right, sizes, 9)
    assert whole[0].shape == (7, 4)
    seen = sizes > 0  # what is never there may change in any way
    np.testing.assert_allclose((whole[0] @ whole[1].T)[:, seen], (left @ right.T)[:, seen], atol=5e-3)
    values = np.linalg.svd((left @ right.T) * sizes)
    nearest = (values[0][:, :2] * values[1][:2]) @ values[2][:2]
    two = cut_rank(left, right, sizes, 2)
    np.testing.assert_allclose((two[0] @ two[1].T) * sizes, nearest, atol=5e-3 * np.abs(nearest).max())
    np.testing.assert_array_equal(two[0], whole[0][:, :2])  # the first directions are those that matter most


def test_a_shift_is_measured_from_right_inputs_of_the_same_class_and_chance_is_left_out() -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(400) % 2
    entering = rng.normal(size=(400, 6)) + 5 * labels[:, None]
    negative = np.arange(400) < 100
    entering[negative, 2] += 2
    folds = np.arange(400) // 2 % 4

    def shifts(among: Array) -> Shifts:
        kinds = Kinds(labels, 1 - labels, among, ~negative, folds, 4)
        return Shifts(kinds, [(slice(0, 150), entering[:150]), (slice(150, 400), entering[150:])])

    shift = shifts(negative).mean()
    assert shift[2] == pytest.approx(2, abs=0.3)
    assert np.flatnonzero(shift).tolist() == [2]
    assert not shifts(negative & (labels > 1)).mean().any()
    alone = shifts(np.arange(400) < 1).mean()
    assert np.count_nonzero(alone) == 6  # one input has no standard error
    usual = np.stack([entering[~negative & (labels == label) & (folds != 1)].mean(axis=0) for label in (0, 1)])
    kept = negative & (folds != 1)
    own = [entering[kept & (labels == label)].mean(axis=0) - usual[label] for label in (0, 1)]
    shares = [np.sum(kept & (labels == label)) / kept.sum() for label in (0, 1)]
    np.testing.assert_allclose(shifts(negative).own(1), (np.array(own) * np.sqrt(shares)[:, None]).T, atol=1e-9)
    read = [entering[kept & (labels != label)].mean(axis=0) - usual[label] for label in (0, 1)]
    np.testing.assert_allclose(
        np.sort(shifts(negative).read_as(1), axis=1),
        np.sort((np.array(read) * np.sqrt(shares[::-1])[:, None]).T),
        atol=1e-9,
    )
    straight = np.mean([entering[row] - usual[labels[row]] for row in np.flatnonzero(kept)], axis=0)
    np.testing.assert_allclose(shifts(negative).mean(1, min_t=0.0), straight, atol=1e-9)


def test_sums_by_fold_have_the_same_bits_whether_columns_are_added_together_or_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(0)
    entering, labels, negative = rng.normal(size=(90, 70)).astype(np.float32), np.arange(90) % 3, rng.random(90) < 0.3
    kinds = Kinds(labels, (labels + 1) % 3, negative, ~negative, np.arange(90) % 4, 4)

    def differences() -> list[Array]:
        shifts = Shifts(kinds, [(slice(0, 40), entering[:40]), (slice(40, 90), entering[40:])])
        return [shifts.mean(0), shifts.own(1), shifts.read_as(2), shifts.mean(min_t=0.0)]

    together = differences()
    monkeypatch.setattr("arachne.search.shifts.MAX_ADDED_BYTES", 1)
    for one, other in zip(together, differences(), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_stuck_pixel_is_repaired_better_than_by_moving_biases(
    network: list[tuple[str, Array, Array]], data: LabelledData
) -> None:
    found, plain = (repair(open_network(network), data, name).evidence.held_out for name in ("erase", "bias"))
    assert found.negatives > 50
    assert found.repaired > 0.5 * found.negatives
    assert found.repaired - found.broken > plain.repaired - plain.broken


def test_the_patch_holds_two_vectors_and_is_taken_back_bit_for_bit(
    network: list[tuple[str, Array, Array]], data: LabelledData
) -> None:
    backend = open_network(network)
    result = repair(backend, data)
    (change,) = result.patch.low_rank
    assert not result.patch.entries
    shown = as_text(EvidenceTable(result.evidence, result.patch))
    assert f"{change.tensor.name}: {change.weights:,} weights, by a matrix of rank {change.edit.rank}" in shown
    before = backend.get_weights(change.key[0])[change.key[1]]
    result.patch.apply(backend)
    after = backend.get_weights(change.key[0])[change.key[1]]
    assert not np.array_equal(after, before)
    result.patch.revert(backend)
    assert np.array_equal(backend.get_weights(change.key[0])[change.key[1]], before)
    assert np.array_equal(result.search.candidate.whole_parameters(backend)[change.key], after)


def test_the_same_seed_gives_the_same_patch(network: list[tuple[str, Array, Array]], data: LabelledData) -> None:
    first, second = (repair(open_network(network), data).patch for _ in range(2))
    assert first.digest == second.digest


def test_no_gradients_are_needed(network: list[tuple[str, Array, Array]], data: LabelledData) -> None:
    found = repair(open_network(network, WithoutGradients), data, include=("fc*",))
    assert found.patch.digest == repair(open_network(network), data, include=("fc*",)).patch.digest


def test_excluded_layers_stay_as_they_are(network: list[tuple[str, Array, Array]], data: LabelledData) -> None:
    found = repair(open_network(network), data, exclude=("fc1",))
    assert {layer for one in found.search.front for layer in one.layers} <= {"fc2", "fc3"}


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
    assert [change_of(one) for one in again.front] == [change_of(one) for one in whole.front]
    assert again.history == whole.history


def test_a_search_that_ends_early_has_the_layers_it_finished(problem: Problem) -> None:
    search = Erase(strengths=6)
    steps = iter(range(100))
    found = search.search(problem, rng=np.random.default_rng(0), stop=lambda: "time" if next(steps) == 6 else None)
    assert {layer for one in found.front for layer in one.layers} == {"fc3"}
    at_once = search.search(problem, rng=np.random.default_rng(0), stop=lambda: "time")
    assert not at_once.better


def run_to_the_end(search: DirectionSearch, problem: Problem) -> SearchState:
    rng = np.random.default_rng(0)
    state = search.begin(problem, rng=rng)
    while state.stopped is None:
        state = search.step(problem, state, rng=rng)
    return state


@pytest.mark.parametrize("search", [Erase(strengths=6), LowRank(steps=16)], ids=lambda search: search.name)
def test_inputs_of_a_layer_that_a_fault_marks_are_also_fitted_alone(problem: Problem, search: DirectionSearch) -> None:
    arrays, sites = run_to_the_end(search, problem).arrays, search.sites(problem)
    used = {
        site.is_narrow: {
            pixel
            for name, array in arrays.items()
            if name.startswith(f"{number}: right")
            for pixel in np.flatnonzero(array.any(axis=1)).tolist()
        }
        for number, site in enumerate(sites)
        if site.info.name == "fc1"
    }
    assert used[True] == {STUCK}
    assert len(used[False]) > 30


def test_where_a_fault_marks_most_inputs_of_a_layer_they_are_not_fitted_twice(
    problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Shifts, "mean", lambda self, without=-1: np.ones(self._sums["negative"].shape[-1]))
    search = Erase(strengths=6)
    state = run_to_the_end(search, problem)
    narrow = {site.is_narrow: len(state.arrays[f"{n}: judged"]) for n, site in enumerate(search.sites(problem))}
    assert narrow == {False: 6, True: 0}
    assert search.result(problem, state).front


@pytest.mark.parametrize("guards", [False, True])
def test_a_fit_leaves_its_fold_out_but_for_what_must_never_break(problem: Problem, guards: bool) -> None:
    inputs = problem.fitness_inputs
    kept = inputs.of_kind("positive") & (np.arange(len(inputs)) % 2 == 0) & guards
    terms = np.where(kept, inputs.n_terms, inputs.terms)
    inputs = replace(inputs, terms=terms, names=(*inputs.names, "golden"), kinds=(*inputs.kinds, "never_break"))
    problem = replace(problem, fitness_inputs=inputs, shared={})
    folds = np.arange(len(inputs)) % 4
    material = gather(problem, problem.backend.info("fc3"), folds, 4)
    among, entering = folds != 0, np.concatenate([piece for _, piece in material.inputs.pieces()])
    negative, positive = (inputs.of_kind(kind) & among for kind in ("negative", "positive"))
    usual = {label: entering[positive & (inputs.labels == label)].mean(axis=0) for label in range(10)}
    shift = np.mean([entering[row] - usual[inputs.labels[row]] for row in np.flatnonzero(negative)], axis=0)
    np.testing.assert_allclose(material.shifts.mean(0, min_t=0.0), shift, atol=1e-5)
    rows = entering[positive | kept].astype(np.float64)
    moments = rows.T @ rows / len(rows)
    moments += RIDGE * np.trace(moments) / len(moments) * np.eye(len(moments))
    np.testing.assert_allclose(
        material.moments.solve(shift[:, None], 0), np.linalg.solve(moments, shift[:, None]), rtol=1e-5, atol=1e-6
    )


def test_the_layers_behind_a_change_are_run_as_the_model_runs_them(problem: Problem) -> None:
    rng = np.random.default_rng(0)
    rows = np.arange(0, len(problem.fitness_inputs), 7)
    left, right = (rng.normal(size=(size, 2)).astype(np.float32) / 8 for size in (24, 32))
    behind_a_cut = replace(problem, shared={"tail": None})
    near, far = (one.low_rank_scorer("fc2", "weight", right) for one in (problem, behind_a_cut))
    np.testing.assert_allclose(near.scores(left.ravel(), rows), far.scores(left.ravel(), rows), atol=1e-4)
    labels = problem.fitness_inputs.labels[rows]
    slopes = [one.gradients(left.ravel(), margin(labels, np.ones(len(rows))), rows) for one in (near, far)]
    np.testing.assert_allclose(slopes[0], slopes[1], rtol=1e-3, atol=1e-3)


def test_what_enters_a_layer_is_the_same_from_the_tail_and_from_a_pass(problem: Problem) -> None:
    for layer in ("fc1", "fc3"):
        info, passed = problem.backend.info(layer), replace(problem, shared={"tail": None})
        kept, again = (read_layer_inputs(one, info) for one in (problem, passed))
        rows = np.arange(0, len(problem.fitness_inputs), 3)
        for one, other in zip(kept.pieces(), again.pieces(), strict=True):
            np.testing.assert_allclose(one[1], other[1], atol=1e-5)
        np.testing.assert_allclose(kept.samples(rows)[0], again.samples(rows)[0], atol=1e-5)


def test_what_enters_a_layer_of_the_tail_is_not_copied_for_second_moments(problem: Problem) -> None:
    info = next(one for one in problem.backend.layers if problem.is_near(one))
    rows, _ = read_layer_inputs(problem, info).samples(np.arange(5, 20))
    assert not is_plain(rows)
    assert not is_lazy(rows)
    assert problem.tail is not None
    np.testing.assert_array_equal(np.asarray(rows), problem.tail.read_entering(info.name, np.arange(5, 20)))


def test_a_search_without_a_layer_to_change_is_refused(problem: Problem) -> None:
    within = replace(problem, allowed=LayerFilter(include=("elsewhere",)))
    with pytest.raises(UsageError, match="leave out all dense, convolutional and recurrent layers"):
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
    problem = build_problem(backend, split, suspects, 10.0, FastEvaluator)
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
    backend = ReferenceBackend(network)
    found = read_layer_inputs(
        replace(problem, backend=backend, fitness_inputs=counted, shared={}), backend.info("each")
    )
    ((_, means),) = found.pieces()
    np.testing.assert_allclose(means, inputs.mean(axis=1), atol=1e-6)
    samples, owners = found.samples(np.arange(20))
    np.testing.assert_array_equal(samples, inputs[np.arange(20), np.arange(20) % 5])
    np.testing.assert_array_equal(owners, np.arange(20))


@pytest.mark.parametrize("name", ["erase", "low-rank"])
def test_a_point_chosen_later_keeps_its_directions(
    network: list[tuple[str, Array, Array]], data: LabelledData, tmp_path: Path, name: str
) -> None:
    result = repair(open_network(network), data, name)
    result.save(tmp_path / "fix")
    again = open_repair(tmp_path / "fix", open_network(network), data)
    for stored, point in zip(again.points, result.points, strict=True):
        assert change_of(stored.candidate) == change_of(point.candidate)
    bolder = again.choose(max_break=0.2)
    assert bolder.patch.low_rank
    assert not bolder.patch.entries
    assert bolder.patch.digest == result.choose(max_break=0.2).patch.digest


def test_directions_that_are_trained_repair_a_stuck_pixel(
    network: list[tuple[str, Array, Array]], data: LabelledData
) -> None:
    result = repair(open_network(network), data, "low-rank")
    found = result.evidence.held_out
    assert found.repaired > 0.6 * found.negatives
    assert found.broken < 0.04 * found.positives
    (change,) = result.patch.low_rank
    assert change.edit.rank <= 4
    with pytest.raises(UsageError, match="has no gradients"):
        repair(open_network(network, WithoutGradients), data, "low-rank")


def test_a_pool_for_single_weights_leaves_directions_out(problem: Problem) -> None:
    pool = Pool(members=("erase", "bias"), sparse=True)
    found = pool.search(problem, rng=np.random.default_rng(0))
    assert all(one.edit is None for one in found.front)
    state = pool.begin(problem, rng=np.random.default_rng(0))
    assert "single weights alone" in str(state.members["erase"].stopped)


def test_a_pool_with_a_limit_on_weights_keeps_it(problem: Problem) -> None:
    pool = Pool(members=("erase", "bias", "margin", "last-layer"), max_weights=4)
    found = pool.search(problem, rng=np.random.default_rng(0))
    assert {one.made_by for one in found.front} >= {"margin", "last-layer"}
    assert max(one.changed_weights for one in found.front) <= 4
    state = pool.begin(problem, rng=np.random.default_rng(0))
    assert "4 weights at most" in str(state.members["erase"].stopped)
    with pytest.raises(UsageError, match="leave out one of both"):
        Settings(searcher=pool, rounds=2)


def test_directions_of_a_convolution_are_found_on_its_patches() -> None:
    backend, data = ReferenceBackend(golden.network("cnn")), golden.data_for("cnn")
    split = split_by_outcome(backend, data, "*:8", rng=np.random.default_rng(0))
    suspects = RandomChoice(count=5).localise(backend, split.seen, rng=np.random.default_rng(0)).suspects
    whole = build_problem(backend, split, suspects, 10.0, FastEvaluator)
    info = next(one for one in backend.layers if one.kind == "conv")
    problem = replace(whole, allowed=LayerFilter(include=(info.name,)))
    folds = np.arange(len(problem.fitness_inputs)) % 2
    material = gather(problem, info, folds, 2)
    kernel = info.parameters["weight"].shape
    assert material.weight.shape == (kernel[0], int(np.prod(kernel[1:])))
    (use,) = backend.activations(take(problem.fitness_inputs.inputs, np.arange(3)), info.name)
    rows, owners = material.inputs.samples(np.arange(3))
    patches = Convolution(info).columns(use.entering["weight"][1])
    np.testing.assert_allclose(material.weight @ patches, leaving_without_bias(backend, info.name, use)[1], atol=1e-4)
    assert {tuple(row) for row in rows[owners == 1].astype(np.float32)} <= {tuple(row) for row in patches.T}
    for search in (Erase(strengths=8, folds=2), LowRank(steps=96, folds=2)):
        found = search.search(problem, rng=np.random.default_rng(0))
        assert {layer for one in found.front for layer in one.layers} == {info.name}
        for one in found.front:
            exact = problem.score_exactly(one).deficits
            assert exact is not None
            assert one.deficits is not None
            np.testing.assert_allclose(exact, one.deficits, rtol=1e-3)


def test_where_the_mean_of_its_runs_repairs_less_than_they_promise_low_rank_trains_on_all_inputs() -> None:
    backend, search, rng = ReferenceBackend(golden.network("mlp")), LowRank(steps=32, folds=2), np.random.default_rng(0)
    split = split_by_outcome(backend, golden.data_for("mlp"), "*:8", rng=np.random.default_rng(0))
    suspects = RandomChoice(count=5).localise(backend, split.seen, rng=np.random.default_rng(0)).suspects
    problem = build_problem(backend, split, suspects, 10.0, FastEvaluator)
    folds = np.arange(len(problem.fitness_inputs)) % 2
    material = gather(problem, search.layers(problem)[0], folds, 2)
    fits = [search.fit(problem, material, fold, rng=rng)[0] for fold in range(2)]
    found = {f"{name} {fold}": array for fold, own in enumerate(fits) for name, array in own.items()}
    points = 3 * len(found["left 0"])
    nothing = np.tile(problem.originally_right, (points, 1))
    assert search.fit_all(problem, material, {**found, "judged": nothing}, rng=rng) == {}
    mean = search.change(found, points - 1)
    found["right 1"], found["left 1"] = found["right 0"], -found["left 0"]  # runs that cancel each other out
    whole = search.fit_all(problem, material, {**found, "judged": np.ones_like(nothing)}, rng=rng)
    assert np.abs(search.change(found, points - 1)[0]).max() < 1e-12
    left, right = search.change({**found, **whole}, points - 1)
    assert np.linalg.norm(left @ right.T) > 0.5 * np.linalg.norm(mean[0] @ mean[1].T)


def leaving_without_bias(backend: ModelBackend, layer: str, use: Activation) -> Array:
    """Run a convolution with its kernel alone, `(n, out, positions)`."""
    bias = backend.get_weights(layer).get("bias", np.zeros(1))
    return use.leaving.reshape(len(use.leaving), use.leaving.shape[1], -1) - bias.reshape(1, -1, 1)


def test_a_convolution_that_no_fault_enters_has_no_directions() -> None:
    backend = ReferenceBackend(golden.network("cnn"))
    split = split_by_outcome(backend, golden.data_for("cnn"), "top:2", rng=np.random.default_rng(0))
    suspects = RandomChoice().localise(backend, split.seen, rng=np.random.default_rng(0)).suspects
    info = next(one for one in backend.layers if one.kind == "conv")
    found = read_layer_inputs(build_problem(backend, split, suspects, 10.0, FastEvaluator), info)
    width = next(piece.shape[1] for _, piece in found.pieces())
    assert found.columns(np.zeros((width, 0))).shape == (np.prod(info.parameters["weight"].shape[1:]), 0)


def test_what_enters_a_convolution_is_read_in_blocks_and_pieces_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    backend, data = ReferenceBackend(golden.network("cnn")), golden.data_for("cnn")
    split = split_by_outcome(backend, data, "*:8", rng=np.random.default_rng(0))
    suspects = RandomChoice(count=5).localise(backend, split.seen, rng=np.random.default_rng(0)).suspects
    problem = build_problem(backend, split, suspects, 10.0, FastEvaluator)
    info = next(one for one in backend.layers if one.kind == "conv")
    (whole,) = backend.activations(problem.fitness_inputs.inputs, info.name)

    def activation_at(self: Problem, layer: str, rows: Array) -> Activation:
        return Activation({"weight": whole.entering["weight"][rows]}, whole.leaving[rows])

    monkeypatch.setattr(Problem, "activation_at", activation_at)
    for name in ("MAX_READ_BYTES", "MAX_PIECE_BYTES"):
        monkeypatch.setattr(f"arachne.search.layer_inputs.{name}", 1)
        found = read_layer_inputs(problem, info)
        pieces = [own.copy() for _, own in found.pieces()]
        np.testing.assert_array_equal(
            np.concatenate(pieces), whole.entering["weight"].reshape(sum(map(len, pieces)), -1)
        )
        assert len(found.samples(np.zeros(0, np.int64))[0]) == 0
    assert len(pieces) > 1
