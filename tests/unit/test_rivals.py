"""Searches to compare with: ridge fit, retraining, fine-tuning."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from arachne.data.split import split_by_outcome
from arachne.decisions.losses import cross_entropies
from arachne.errors import UsageError
from arachne.localise import Bidirectional, Everything
from arachne.rivals import Retrain, Ridge, Tune
from arachne.scoring.evaluators import FastEvaluator, FitnessInputs
from arachne.search import Problem, Searcher
from arachne.search.folds import draw_batch, rows_by_kind
from arachne.testing import ReferenceBackend
from tests.backends import golden


@pytest.fixture(scope="module")
def problem() -> Problem:
    """A network on digits, and what it reads as eight by mistake."""
    backend = ReferenceBackend(golden.network("mlp"))
    split = split_by_outcome(backend, golden.digits(), "*:8", rng=np.random.default_rng(0))
    suspects = Bidirectional(min_weights=20).localise(backend, split.seen, rng=np.random.default_rng(0)).suspects
    return Problem(backend, split, suspects, FitnessInputs.of(split.seen, split.seen.terms(10.0)), FastEvaluator)


def everywhere(problem: Problem) -> Problem:
    """Run a search over all weights."""
    found = Everything().localise(problem.backend, problem.split.seen, rng=np.random.default_rng(0))
    return problem.with_suspects(found.suspects)


@pytest.mark.parametrize("search", [Ridge(), Retrain(steps=48), Tune(steps=64, folds=2)], ids=lambda one: one.name)
def test_rivals_repair_something_and_are_judged_out_of_fold(problem: Problem, search: Searcher) -> None:
    problem = everywhere(problem) if search.name == "tune" else problem
    found = search.search(problem, rng=np.random.default_rng(0))
    assert found.better
    assert all(one.made_by == search.name and one.held_back is not None for one in found.front)


def test_the_ridge_fit_is_where_its_loss_is_flat(problem: Problem) -> None:
    search = Ridge(strengths=3)
    last = search.select_weights(problem)
    rng = np.random.default_rng(0)
    state = search.begin(problem, rng=rng)
    state = search.step(problem, state, rng=rng)
    change = state.arrays["ahead"][1] * state.arrays["scale"]
    assert last.tail is not None
    layer = last.suspects.addresses[0].layer
    among = state.arrays["folds"] != 0
    entering = last.tail.entering(layer)[among].astype(np.float64)
    entering = np.column_stack([entering, np.ones(len(entering))])
    weights = last.fitness_inputs.weights[among]
    delta = np.zeros((last.original_scores.shape[1], entering.shape[1]))
    for address, own in zip(last.suspects.addresses, change, strict=True):
        delta[(address.index[0], -1) if address.parameter == "bias" else address.index] = own
    strength = np.sqrt(1e2 * 1e-5) * np.trace(entering.T @ (entering * weights[:, None])) / entering.shape[1]
    before = last.original_scores[among].astype(np.float64)
    labels, negative = last.fitness_inputs.labels[among], last.fitness_inputs.of_kind("negative")[among]
    wanted = np.zeros_like(before)
    for row in np.flatnonzero(negative):
        rival = int(np.argmax(before[row]))
        missing = 0.2 * last.margin_unit + before[row, rival] - before[row, labels[row]]
        wanted[row, labels[row]], wanted[row, rival] = missing / 2, -missing / 2
    slope = ((entering @ delta.T - wanted) * weights[:, None]).T @ entering + strength * delta
    start = (-wanted * weights[:, None]).T @ entering
    assert np.abs(slope).max() < 1e-4 * np.abs(start).max()


def test_retraining_counts_negatives_alpha_times(problem: Problem) -> None:
    inputs = problem.fitness_inputs
    batch = draw_batch(problem, rows_by_kind(problem, np.ones(len(inputs), bool)), 10**6, rng=np.random.default_rng(0))
    loss_gradient = Retrain().loss_gradient(problem, batch, 0.0)
    scores = batch.before.astype(np.float64)
    nudge = np.random.default_rng(1).normal(size=scores.shape) * 1e-5
    weights = inputs.weights[batch.rows] / inputs.weights.sum()
    after, before = (cross_entropies(scores + sign * nudge, batch.labels) @ weights for sign in (1, -1))
    assert set(inputs.weights) == {1.0, 10.0}
    assert (loss_gradient(scores, slice(0, len(scores))) * 2 * nudge).sum() == pytest.approx(after - before, rel=1e-3)


def test_fine_tuning_refuses_more_weights_than_memory_allows(problem: Problem) -> None:
    with pytest.raises(UsageError, match=r"fine-tuning 20 weights takes about 2e-05 GB .* at most 10 weights"):
        Tune(most_weights=10).begin(problem, rng=np.random.default_rng(0))


def test_all_weights_are_every_weight_of_the_layers_that_are_left(problem: Problem) -> None:
    rng = np.random.default_rng(0)
    sizes = {info.name: sum(own.size for own in info.parameters.values()) for info in problem.backend.layers}
    first = problem.backend.layers[0].name
    found = Everything(exclude=(first,)).localise(problem.backend, problem.split.seen, rng=rng)
    assert len(found.suspects) == sum(sizes.values()) - sizes[first]
    with pytest.raises(UsageError, match="takes every weight and no count"):
        replace(Everything(), count=3).localise(problem.backend, problem.split.seen, rng=rng)
