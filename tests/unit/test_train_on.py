"""Members that train on: their loss, the training inputs they draw, and when the pool runs them."""

from __future__ import annotations

import numpy as np
import pytest

from arachne.data.labelled import LabelledData
from arachne.data.split import split_by_outcome
from arachne.decisions.losses import cross_entropies, probabilities
from arachne.errors import UsageError
from arachne.localise import Contrast
from arachne.scoring.evaluators import FastEvaluator
from arachne.search import Pool, Problem, TuneAnchored, TuneTraining, pool, train_on
from arachne.search.build import build_problem
from arachne.search.folds import draw_batch, rows_by_kind
from arachne.testing import ReferenceBackend
from tests.backends.golden import data_for, network


def small_problem(training: LabelledData | None = None) -> Problem:
    backend, rng = ReferenceBackend(network("mlp")), np.random.default_rng(0)
    split = split_by_outcome(backend, data_for("mlp"), "*:8", rng=rng)
    suspects = Contrast().localise(backend, split.seen, rng=rng).suspects
    return build_problem(backend, split, suspects, 10.0, FastEvaluator, training)[0]


def test_the_gradient_is_that_of_cross_entropy_and_divergence() -> None:
    problem = small_problem()
    batch = draw_batch(problem, rows_by_kind(problem, np.ones(len(problem.fitness_inputs), bool)), 6, rng=_rng())
    scores = batch.before + _rng().normal(size=batch.before.shape)
    counts = np.where(
        batch.negative, *(problem.fitness_inputs.of_kind(kind).sum() for kind in ("negative", "positive"))
    )
    weights = batch.shares * counts * np.where(batch.negative, 30.0, 1.0)
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


def _rng() -> np.random.Generator:
    return np.random.default_rng(0)
