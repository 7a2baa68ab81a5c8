"""Members that train on: their loss, the training inputs they draw, and when the pool runs them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit

import arachne
from arachne.data.labelled import LabelledData
from arachne.data.split import split_by_outcome
from arachne.decisions.losses import cross_entropies, probabilities
from arachne.errors import UsageError
from arachne.fairness import AccuracyGap
from arachne.localise import Contrast
from arachne.scoring.evaluators import FastEvaluator
from arachne.search import Pool, Problem, TuneAnchored, TuneTraining, pool, train_on
from arachne.search.build import build_problem
from arachne.search.cross_fit import CHANGE_SHARES, select_front
from arachne.search.folds import draw_batch, rows_by_kind
from arachne.tasks import margins
from arachne.testing import ReferenceBackend
from arachne.testing.networks import mlp
from tests.backends.golden import data_for, network


def small_problem(training: LabelledData | None = None, *, others: bool = False) -> Problem:
    backend, rng = ReferenceBackend(network("mlp")), np.random.default_rng(0)
    split = split_by_outcome(backend, data_for("mlp"), "*:8", rng=rng)
    suspects = Contrast().localise(backend, split.seen, rng=rng).suspects
    return build_problem(backend, split, suspects, 10.0, FastEvaluator, training, others=others)


def test_the_gradient_is_that_of_cross_entropy_and_divergence() -> None:
    problem = small_problem()
    batch = draw_batch(problem, rows_by_kind(problem, np.ones(len(problem.fitness_inputs), bool)), 6, rng=_rng())
    scores = batch.before + _rng().normal(size=batch.before.shape)
    counts = np.where(
        batch.negative, *(problem.fitness_inputs.of_kind(kind).sum() for kind in ("negative", "positive"))
    )
    weights = batch.shares * counts * np.where(batch.negative, train_on.LAST_BOOST, 1.0)
    weights /= weights.sum()
    before = np.log(probabilities(batch.before.astype(np.float64)))

    def loss(scores: np.ndarray) -> float:
        apart = (np.exp(before) * (before - np.log(probabilities(scores)))).sum(axis=1)
        return float((weights * (cross_entropies(scores, batch.labels) + np.where(batch.negative, 0, apart))).sum())

    found = TuneAnchored().loss_gradient(problem, batch, 1.0)(scores, slice(0, len(scores)))
    for row, column in ((0, 0), (1, 8), (len(scores) - 1, 3)):
        moved = np.zeros_like(scores)
        moved[row, column] = 1e-5
        slope = (loss(scores + moved) - loss(scores - moved)) / 2e-5
        assert found[row, column] == pytest.approx(slope, abs=1e-6)


def test_training_inputs_near_the_negatives_are_those_with_the_nearest_scores() -> None:
    data = data_for("mlp")
    problem = small_problem(LabelledData(data.inputs, data.labels))
    near = train_on._near_negatives(problem)
    scores = problem.backend.forward(data.inputs)
    negatives = problem.original_scores[problem.fitness_inputs.of_kind("negative")]
    apart = np.square(scores[:, None] - negatives[None]).sum(axis=2)
    assert set(np.argmin(apart, axis=0).tolist()) <= set(near.tolist())
    assert len(near) <= train_on.NEAREST * len(negatives)
    assert apart[near].min(axis=1).max() < np.delete(apart, near, axis=0).min(axis=1).max()


def test_training_inputs_alone_lead_every_run_to_the_same_points() -> None:
    data = data_for("mlp")
    problem = small_problem(LabelledData(data.inputs, data.labels))
    search, rng = TuneTraining(alone=4, drawn=16, steps=16, folds=2), _rng()
    state, changes = search.begin(problem, rng=rng), []
    while state.stopped is None:
        state = search.step(problem, state, rng=rng)
        changes.append(state.arrays["change"])
    assert len(changes) == search.folds * (train_on.ALONE_POINTS + 1)
    first, second = changes[: train_on.ALONE_POINTS], changes[train_on.ALONE_POINTS + 1 :]
    for one, other in zip(first, second, strict=False):
        assert np.abs(one).max() > 0
        np.testing.assert_allclose(other, one, rtol=1e-12)


def test_steps_on_training_inputs_count_as_passes_and_may_run_over_all_that_is_given() -> None:
    data = data_for("mlp")
    problem = small_problem(LabelledData(data.inputs, data.labels))
    seen = len(problem.split.seen)
    few, many = (TuneTraining(alone=alone, drawn=seen, steps=16) for alone in (8, 16))
    assert many.passes(problem) - few.passes(problem) == pytest.approx(16)
    shorter = many.within(problem, few.passes(problem))
    assert shorter is not None
    assert shorter.passes(problem) <= few.passes(problem)
    with_training = Pool(members=("tune@anchored", "tune@training")).begin(problem, rng=_rng())
    assert "trains with them too" in str(with_training.members["tune@anchored"].stopped)


def test_without_training_inputs_it_is_left_out() -> None:
    with pytest.raises(UsageError, match="no training inputs"):
        TuneTraining().begin(small_problem(), rng=_rng())


def test_the_pool_trains_on_only_where_other_members_do_not_suffice_and_the_model_is_small(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem = small_problem()
    alone = Pool(members=("tune@anchored",))
    assert alone.begin(problem, rng=_rng()).members["tune@anchored"].stopped is None
    monkeypatch.setattr(pool, "MAX_TRAINED", 10)
    stopped = alone.begin(problem, rng=_rng()).members["tune@anchored"].stopped
    assert stopped is not None
    assert "more than 10 weights" in stopped
    monkeypatch.setattr(pool, "MAX_TRAINED", 10**6)
    monkeypatch.setattr(Pool, "_suffices", lambda *_: True)
    stopped = alone.begin(problem, rng=_rng()).members["tune@anchored"].stopped
    assert stopped is not None
    assert "at least 50 % of the fault" in stopped


def test_training_on_is_skipped_only_where_other_members_are_good_at_large_budgets_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem, both = small_problem(), Pool(members=("bias", "tune@anchored"))

    def skips(*wanted: tuple[float, float]) -> bool:
        monkeypatch.setitem(pool.SUFFICIENT_REPAIR, "tune@anchored", wanted)
        state = both.begin(problem, rng=_rng())
        while "tune@anchored" not in state.members:
            state = both.step(problem, state, rng=_rng())
        return state.members["tune@anchored"].stopped is not None

    assert skips((0.01, 1.0))
    assert skips((0.01, 1.0), (0.02, 1.0))
    assert not skips((0.01, 1.0), (1.01, 1.0))
    assert not skips((0.01, -1.0))


def test_the_last_point_goes_twice_as_far_as_trained_unless_groups_are_to_become_even() -> None:
    problem, search = small_problem(), TuneAnchored(steps=128, folds=2)
    sides = np.where(np.arange(len(problem.split.seen)) % 3 == 0, "left", "right")
    seen = replace(problem.split.seen, data=replace(problem.split.seen.data, columns={"side": sides}))
    fair = replace(problem, split=replace(problem.split, seen=seen, objective=AccuracyGap(group_column="side")))
    assert (search.points, replace(search, beyond=1.0).points, TuneTraining(steps=64).points) == (3, 2, 3)
    for asked, times in ((problem, 2.0), (fair, 1.0)):
        state = search.begin(asked, rng=_rng())
        while state.stopped is None:
            state = search.step(asked, state, rng=_rng())
        path, right = state.arrays["path"], state.arrays["right"].reshape(3, len(CHANGE_SHARES), -1)
        np.testing.assert_array_equal(path[2], times * path[1])
        np.testing.assert_array_equal(right[2, CHANGE_SHARES.index(1 / times)], right[1, 0])
        assert np.array_equal(right[2, 0], right[1, 0]) == (times == 1.0)


def test_training_on_goes_no_further_than_trained_before_it_takes_fewer_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, search = small_problem(), TuneAnchored()
    monkeypatch.setattr(TuneAnchored, "passes", lambda self, _: self.steps / 192 * self.points)
    assert search.within(problem, 3.9) == replace(search, beyond=1.0)
    fewer = search.within(problem, 2.0)
    assert fewer is not None
    assert fewer.steps < 192
    assert fewer.beyond == 1.0


def test_a_limit_on_accuracy_trains_on_all_errors_whatever_other_members_repair(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem = small_problem(others=True)
    seen, inputs = problem.split.seen, problem.fitness_inputs
    assert problem.counts_others
    assert not small_problem().counts_others
    assert inputs.of_kind("other").sum() == (~seen.right).sum() - len(seen.negatives) > 0
    by_kind = rows_by_kind(problem, np.ones(len(inputs), bool), others=True)
    batch = draw_batch(problem, by_kind, 10**6, rng=_rng())
    off = inputs.of_kind("other")[batch.rows]
    own = TuneAnchored().loss_gradient(problem, batch, 1.0)(batch.before, slice(0, len(batch.rows)))
    assert np.abs(own[off]).sum() > 0
    monkeypatch.setattr(Pool, "_suffices", lambda *_: True)
    members = Pool(members=("tune@anchored",)).begin(problem, rng=_rng()).members
    assert members["tune@anchored"].stopped is None


def test_with_an_objective_the_gradient_has_its_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = small_problem()
    sides = np.where(np.arange(len(plain.split.seen)) % 3 == 0, "left", "right")
    seen = replace(plain.split.seen, data=replace(plain.split.seen.data, columns={"side": sides}))
    objective = AccuracyGap(group_column="side", group_size=1)
    problem = replace(plain, split=replace(plain.split, seen=seen, objective=objective))
    assert problem.has_objective
    rows = np.arange(len(problem.fitness_inputs))
    batch = draw_batch(problem, rows_by_kind(problem, np.ones(len(rows), bool)), 10**6, rng=_rng())
    values, unit = problem.suspects.values, train_on.FAIR_MARGIN * problem.margin_unit
    loss = train_on._fairness_loss(problem, values, batch, 1.0)
    found = loss(batch.before, slice(0, len(batch.rows)))
    right = expit(margins(batch.before, batch.labels) / unit)
    pulled = found[np.arange(len(found)), batch.labels] / (right * (1 - right)) * unit
    assert problem.rows is not None
    own = sides[problem.rows[batch.rows]]
    assert len(np.unique(np.sign(pulled))) == 2
    for side in ("left", "right"):
        np.testing.assert_allclose(pulled[own == side], pulled[own == side][0], rtol=1e-3)
    np.testing.assert_allclose(found.sum(axis=1), 0, atol=1e-9)
    search = TuneAnchored()
    first = search.gradient(problem, values, batch, 0.0, rng=_rng())
    last = search.gradient(problem, values, batch, 1.0, rng=_rng())
    by_cost = problem.scorer.gradients(values, loss, batch.rows)
    np.testing.assert_allclose(last - first, train_on.FAIR * by_cost, rtol=1e-3, atol=1e-6)
    monkeypatch.setattr(Pool, "_suffices", lambda *_: True)
    members = Pool(members=("tune@anchored",)).begin(problem, rng=_rng()).members
    assert members["tune@anchored"].stopped is None


def test_a_model_of_one_number_becomes_fairer() -> None:
    rng = _rng()
    group = rng.integers(2, size=1600)
    told = rng.normal(size=1600)
    labels = (told + 0.5 * rng.normal(size=1600) > 0).astype(np.int64)
    inputs = np.stack([told, group, np.ones(1600)], axis=1).astype(np.float32)
    backend = ReferenceBackend(mlp([3, 4, 1], seed=0))
    first, last = (info.name for info in backend.layers)
    backend.set_weights(first, "weight", np.array([[4, 0, 0], [-4, 0, 0], [0, 1, 0], [0, 0, 1]], np.float32))
    backend.set_weights(last, "weight", np.array([[1, -1, 2, -1]], np.float32))
    data = LabelledData(inputs, labels, columns={"side": np.where(group > 0, "left", "right")})
    search = TuneAnchored(steps=96, folds=2)
    found = arachne.repair(backend, data, "*:*", searcher=search, objective="odds:side", max_break=0.2, task="binary")
    fairness = found.evidence.held_out.fairness
    assert fairness is not None
    assert fairness.before.value > 0.1
    assert fairness.after.value < 0.6 * fairness.before.value


def test_points_that_fix_as_many_as_they_break_stay_where_accuracy_is_limited() -> None:
    problem = small_problem(others=True)
    inputs = problem.fitness_inputs
    timid, bold, worse = (problem.originally_right.copy() for _ in range(3))
    negative, positive, other = (np.flatnonzero(inputs.of_kind(kind)) for kind in ("negative", "positive", "other"))
    timid[negative[:3]] = True
    for one in (bold, worse):
        one[negative[:2]], one[positive[:2]] = True, False
    bold[other[:3]] = True
    assert select_front(problem, np.stack([timid, bold, worse])) == [0, 1]
    assert select_front(replace(problem, fitness_inputs=small_problem().fitness_inputs), _without(timid, bold)) == [0]


def _without(*rows: np.ndarray) -> np.ndarray:
    """Return outcomes of the inputs that count where accuracy is not limited."""
    return np.stack(rows)[:, : len(small_problem().fitness_inputs)]


def _rng() -> np.random.Generator:
    return np.random.default_rng(0)
