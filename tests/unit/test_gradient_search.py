"""Cross-fitted gradient searches and the pool: what they find, what they promise, and that they can be continued."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from arachne.data.split import split_by_outcome
from arachne.errors import UsageError
from arachne.localise import Contrast
from arachne.rivals import Ridge
from arachne.scoring.cut import CutScorer
from arachne.scoring.evaluators import FastEvaluator, FitnessInputs
from arachne.search import (
    BiasShift,
    Front,
    LastLayer,
    MarginConv,
    MarginFisher,
    MarginHidden,
    MarginSearch,
    Pool,
    Problem,
    Searcher,
)
from arachne.search.cross_fit import pareto
from arachne.search.folds import draw_batch, fold_numbers, rows_by_kind
from arachne.testing import ReferenceBackend
from arachne.weights.selection import Selection
from tests.backends import golden
from tests.unit.test_search_steps import written_and_read

SHORT: dict[str, Any] = {"steps": 48, "folds": 3}
SEARCHES = [
    MarginSearch(**SHORT),
    MarginHidden(**SHORT),
    MarginFisher(**SHORT),
    BiasShift(**SHORT),
    LastLayer(**SHORT),
    Pool(),
]


@pytest.mark.parametrize("search", SEARCHES, ids=lambda search: search.name)
def test_a_front_repairs_ever_more_at_the_price_of_ever_more_broken(problem: Problem, search: Searcher) -> None:
    found = search.search(problem, rng=np.random.default_rng(0))
    negative, positive = (problem.fitness_inputs.of_kind(kind) for kind in ("negative", "positive"))
    for maker in {candidate.made_by for candidate in found.front}:
        held_back = [one.held_back for one in found.front if one.made_by == maker and one.held_back is not None]
        repaired = [int(right[negative].sum()) for right in held_back]
        broken = [int((~right[positive]).sum()) for right in held_back]
        assert repaired == sorted(set(repaired))
        assert broken == sorted(broken)
    assert found.better


def test_every_fitness_input_is_judged_by_a_run_that_did_not_see_it(problem: Problem) -> None:
    folds = fold_numbers(problem, 4, rng=np.random.default_rng(0))
    for fold in range(4):
        batch = draw_batch(problem, rows_by_kind(problem, folds != fold), 10**6, rng=np.random.default_rng(0))
        assert not set(batch.rows.tolist()) & set(np.flatnonzero(folds == fold).tolist())
        assert len(batch.rows) == int((folds != fold).sum())
    for kind in ("negative", "positive"):
        sizes = np.bincount(folds[problem.fitness_inputs.of_kind(kind)], minlength=4)
        assert sizes.max() - sizes.min() <= len(np.unique(problem.fitness_inputs.labels))


def test_what_must_never_break_is_in_every_step(problem: Problem) -> None:
    inputs = problem.fitness_inputs
    terms = np.where(np.arange(len(inputs)) < 5, inputs.n_terms, inputs.terms)
    guarded = replace(inputs, terms=terms, names=(*inputs.names, "golden"), kinds=(*inputs.kinds, "never_break"))
    own = replace(problem, fitness_inputs=guarded)
    batch = draw_batch(own, rows_by_kind(own, terms == -1), 3, rng=np.random.default_rng(0))
    assert set(batch.rows.tolist()) < set(range(5))
    assert batch.shares.sum() == pytest.approx(1.0)


def test_several_targets_count_as_they_are_weighted(problem: Problem) -> None:
    inputs = problem.fitness_inputs
    negative = inputs.of_kind("negative")
    heavy = np.flatnonzero(negative)[:3]
    weights = inputs.weights.copy()
    weights[heavy] *= 3
    problem = replace(problem, fitness_inputs=replace(inputs, weights=weights))
    batch = draw_batch(problem, rows_by_kind(problem, np.ones(len(inputs), bool)), 10**6, rng=np.random.default_rng(0))
    shares = {int(row): float(share) for row, share in zip(batch.rows, batch.shares, strict=True)}
    light = int(np.flatnonzero(negative)[3])
    assert shares[int(heavy[0])] == pytest.approx(3 * shares[light])


@pytest.mark.parametrize(
    "search",
    [MarginSearch(**SHORT), Pool(members=("bias", "margin")), Ridge(strengths=6), Front(population=8, generations=3)],
    ids=lambda search: search.name,
)
@pytest.mark.parametrize("stop_at", [0, 3, 11, 65])
def test_a_search_that_was_written_down_gives_the_same_front(problem: Problem, search: Searcher, stop_at: int) -> None:
    whole = search.search(problem, rng=np.random.default_rng(0))
    rng = np.random.default_rng(0)
    state = search.begin(problem, rng=rng)
    for _ in range(min(stop_at, whole.generations)):
        state = search.step(problem, state, rng=rng)
    state, generator = written_and_read(state, rng)
    again = search.search(problem.with_suspects(problem.suspects), rng=generator, state=state)
    assert [one.values.tolist() for one in again.front] == [one.values.tolist() for one in whole.front]
    assert [one.made_by for one in again.front] == [one.made_by for one in whole.front]
    assert again.history == whole.history


def test_changes_are_multiples_of_a_grid_so_that_frameworks_agree(problem: Problem) -> None:
    search = MarginSearch(**SHORT)
    state = search.begin(problem, rng=np.random.default_rng(0))
    scale = state.arrays["scale"]
    found = search.search(problem, rng=np.random.default_rng(0))
    steps = search.GRID * (found.front[-1].values - problem.suspects.values) / scale
    np.testing.assert_allclose(steps, np.rint(steps), atol=0.01)


def test_a_member_that_cannot_run_is_left_out_and_the_reason_kept(problem: Problem) -> None:
    network = golden.network("cnn")  # its dense part is a single layer: there is no hidden one
    backend = ReferenceBackend(network)
    split = split_by_outcome(backend, golden.digits(), "top:1", rng=np.random.default_rng(0))
    suspects = Contrast(depth="tail").localise(backend, split.seen, rng=np.random.default_rng(0)).suspects
    fault = Problem(backend, split, suspects, FitnessInputs.of(split.seen, split.seen.terms(10.0)), FastEvaluator)
    state = Pool(members=("margin@hidden", "bias")).begin(fault, rng=np.random.default_rng(0))
    assert "no hidden dense layer" in str(state.members["margin@hidden"].stopped)
    found = Pool(members=("margin@hidden", "bias")).search(fault, rng=np.random.default_rng(0))
    assert {candidate.made_by for candidate in found.front} == {"bias"}


def test_differential_evolution_runs_where_no_member_can(problem: Problem) -> None:
    class NoGradients(ReferenceBackend):
        SUPPORTS_GRADIENTS = False

    few = Selection.of(problem.backend, problem.suspects.addresses[:4])
    without = replace(problem, backend=NoGradients(golden.network("mlp")), suspects=few)
    found = Pool().search(without, rng=np.random.default_rng(0))
    found_by = {candidate.made_by for candidate in found.front}
    assert {"de"} <= found_by <= {"de", "erase", "gate", "gates"}  # three need no gradients


def convolutional(target: str = "top:1") -> Problem:
    """A convolution and a single dense layer on digits."""
    backend = ReferenceBackend(golden.network("cnn"))
    split = split_by_outcome(backend, golden.digits(), target, rng=np.random.default_rng(0))
    suspects = Contrast().localise(backend, split.seen, rng=np.random.default_rng(0)).suspects
    return Problem(backend, split, suspects, FitnessInputs.of(split.seen, split.seen.terms(10.0)), FastEvaluator)


def test_convolutions_are_repaired_behind_a_cut() -> None:
    problem = convolutional()
    search = MarginConv(steps=32, folds=2)
    found = search.search(problem, rng=np.random.default_rng(0))
    assert {address.layer for address in found.addresses} == {"first"}
    assert isinstance(search.select_weights(problem).scorer, CutScorer)
    assert found.better


def test_the_pool_takes_fewer_steps_where_each_runs_convolutions(problem: Problem) -> None:
    fault, deep = convolutional(), MarginConv()
    convolutions = replace(fault, suspects=deep.select_weights(fault).suspects)
    assert Pool()._whole_searcher("margin", convolutions) == MarginSearch(steps=deep.steps, folds=deep.folds)
    assert Pool()._whole_searcher("margin", problem) == MarginSearch()


def test_the_pool_goes_deep_only_where_no_hidden_dense_layer_is_reached(problem: Problem) -> None:
    def left_out(pool: Pool, fault: Problem) -> str | None:
        rng = np.random.default_rng(0)
        state = pool.begin(fault, rng=rng)
        while state.stopped is None and "margin@conv" not in state.members:
            state = pool.step(fault, state, rng=rng)
        return state.members["margin@conv"].stopped

    pool = Pool(members=("margin@hidden", "margin@conv"))
    assert "hidden dense layers" in str(left_out(pool, problem))
    assert left_out(pool, convolutional()) is None


def test_the_pool_does_not_go_deep_where_the_suspects_are_convolutions() -> None:
    fault = convolutional()
    fault = replace(fault, suspects=MarginConv().select_weights(fault).suspects)
    state = Pool(members=("bias", "margin@conv")).begin(fault, rng=np.random.default_rng(0))
    while state.stopped is None:
        state = Pool(members=("bias", "margin@conv")).step(fault, state, rng=np.random.default_rng(0))
    assert "in these layers already" in str(state.members["margin@conv"].stopped)


def test_the_pool_does_not_go_deep_where_cheaper_members_repair_part_of_the_fault() -> None:
    fault, pool, rng = convolutional(), Pool(members=("bias", "last-layer", "margin@conv")), np.random.default_rng(0)
    state = pool.begin(fault, rng=rng)
    while state.stopped is None:
        state = pool.step(fault, state, rng=rng)
    assert "repair at least 25 % of the fault" in str(state.members["margin@conv"].stopped)
    assert {candidate.made_by for candidate in pool.result(fault, state).front} <= {"bias", "last-layer"}


def test_a_pool_of_itself_or_of_strangers_is_refused() -> None:
    with pytest.raises(UsageError, match="members must be searchers other than 'auto'"):
        Pool(members=("auto",))
    with pytest.raises(UsageError, match="no searcher named 'margn'"):
        Pool(members=("margn",))


def test_the_pool_takes_any_searcher(problem: Problem) -> None:
    few = problem.with_suspects(Selection.of(problem.backend, problem.suspects.addresses[:4]))
    found = Pool(members=("bias", "de")).search(few, rng=np.random.default_rng(0))
    assert {candidate.made_by for candidate in found.front} == {"bias", "de"}


def test_points_that_another_beats_in_both_are_dropped() -> None:
    repaired, broken = np.array([0, 3, 5, 4, 5, 9]), np.array([0, 1, 2, 3, 2, 9])
    assert pareto(repaired, broken) == [1, 2, 5]
