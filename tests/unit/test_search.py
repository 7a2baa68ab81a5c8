from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from arachne.data.labelled import LabelledData
from arachne.data.split import split_by_outcome
from arachne.errors import UsageError
from arachne.localise import Bidirectional
from arachne.model.values import Address, Array
from arachne.scoring.evaluators import UNIT, FitnessInputs, PlainEvaluator
from arachne.search import DifferentialEvolution, Problem, SearchResult, SearchState
from arachne.testing import ReferenceBackend, mlp, random_inputs
from arachne.weights.selection import Selection


@pytest.fixture(scope="module")
def problem() -> Problem:
    """A random network asked to read as 0 some of what it reads as 1."""
    network = mlp([5, 8, 3], seed=4)
    backend = ReferenceBackend(network)
    inputs = random_inputs(network, 160, seed=2)
    predictions = backend.predict(inputs)
    labels = np.where((predictions == 1) & (np.asarray(inputs)[:, 0] > 0.3), 0, predictions)
    data = LabelledData(inputs, labels)
    split = split_by_outcome(backend, data, "0:1", rng=np.random.default_rng(0))
    suspects = Bidirectional(min_weights=4).localise(backend, split.seen, rng=np.random.default_rng(0)).suspects
    return Problem(backend, split, suspects, FitnessInputs.of(split.seen, split.seen.terms(10.0)), PlainEvaluator)


def run(problem: Problem, seed: int = 0, **settings: Any) -> SearchResult:
    search = DifferentialEvolution(**{"population": 20, "generations": 15, **settings})
    return search.search(problem, rng=np.random.default_rng(seed))


def run_from(start: Array, problem: Problem, search: DifferentialEvolution) -> SearchResult:
    rng = np.random.default_rng(0)
    return search.search(problem, rng=rng, state=search.begin(problem, rng=rng, start=start))


def test_the_same_seed_gives_the_same_patch_and_another_seed_another(problem: Problem) -> None:
    first, again, other = run(problem), run(problem), run(problem, seed=1)
    np.testing.assert_array_equal(first.values, again.values)
    assert first.history == again.history
    assert (first.values != other.values).any()


def test_the_best_fitness_never_falls(problem: Problem) -> None:
    fitness = [generation.fitness for generation in run(problem).history]
    assert fitness == sorted(fitness)


def test_fitness_is_what_the_paper_sums_over_positives_and_negatives(problem: Problem) -> None:
    result = run(problem)
    seen = problem.split.seen
    scores = problem.evaluator.scores(result.values)
    order = np.concatenate([seen.positives, seen.negatives])
    exponents = np.exp(scores - scores.max(axis=1, keepdims=True))
    labels = seen.data.labels[order]
    loss = -np.log((exponents / exponents.sum(axis=1, keepdims=True))[np.arange(len(labels)), labels])
    score = np.where(scores.argmax(axis=1) == labels, 1.0, 1 / (loss + 1))
    weight = np.where(np.arange(len(labels)) < len(seen.positives), 1.0, 10.0)
    np.testing.assert_allclose(result.fitness, (weight * score).sum(), rtol=1e-6)


def test_a_repair_beats_doing_nothing_and_counts_what_it_did(problem: Problem) -> None:
    result = run(problem, generations=40)
    assert result.better
    assert result.fitness > result.original_fitness
    assert (result.history[-1].repaired, result.history[-1].broken) == problem.evaluator.outcome(result.values)[:2]
    assert result.history[-1].repaired > 0


def test_the_search_stops_when_the_best_has_not_changed_for_so_long(problem: Problem) -> None:
    result = run(problem, generations=300, patience=3)
    last = [generation.fitness for generation in result.history[-4:]]
    assert len(set(last)) == 1
    assert result.generations < 300
    assert result.stopped.startswith("best unchanged for 3 generations")
    assert run(problem, generations=1).stopped.startswith("no more were asked for")


def test_no_generations_hand_back_the_best_of_the_first_population(problem: Problem) -> None:
    result = run(problem, generations=0, keep_original=False)
    assert [generation.number for generation in result.history] == [0]
    assert result.history[0].evaluations == 20


def test_the_original_weights_come_back_when_nothing_beats_them(problem: Problem) -> None:
    awful = np.full((20, len(problem.suspects)), 3e38)  # overflows: every input is wrong
    result = run_from(awful, problem, DifferentialEvolution(generations=0))
    np.testing.assert_array_equal(result.values, problem.suspects.values)
    assert not result.better
    kept = run_from(awful, problem, DifferentialEvolution.faithful(generations=0))
    np.testing.assert_array_equal(kept.values, awful[0].astype(np.float32))


def test_candidates_are_rounded_to_what_the_model_stores(problem: Problem) -> None:
    result = run(problem)
    np.testing.assert_array_equal(result.values, result.values.astype(np.float32).astype(np.float64))


def test_the_first_population_is_drawn_from_each_layers_gaussian(problem: Problem) -> None:
    search = DifferentialEvolution.faithful(population=20_000)
    population = search.first_population(problem.suspects, rng=np.random.default_rng(0))
    np.testing.assert_allclose(population.mean(axis=0), problem.suspects.means, atol=0.02)
    np.testing.assert_allclose(population.std(axis=0), problem.suspects.deviations, rtol=0.03)


def test_with_many_suspects_the_search_starts_near_the_original_values() -> None:
    backend = ReferenceBackend(mlp([5, 8, 3], seed=4))
    many = Selection.of(backend, [Address("fc1", "weight", (j, i)) for j in range(8) for i in range(5)])
    population = DifferentialEvolution(population=5_000).first_population(many, rng=np.random.default_rng(0))
    np.testing.assert_allclose(population.mean(axis=0), many.values, atol=0.02)
    np.testing.assert_allclose(population.std(axis=0), 0.2 * many.deviations, rtol=0.1)


def test_trials_stay_within_twice_the_layers_range_unless_faithful(problem: Problem) -> None:
    seen: list[np.ndarray[Any, Any]] = []

    class Watched(PlainEvaluator):
        def evaluate(self, trials: Any, limits: Any = None) -> Any:
            seen.append(trials)
            return super().evaluate(trials, limits)

    suspects = problem.suspects
    task = replace(problem, make_evaluator=Watched)
    low = np.where(suspects.lowest < 0, 2 * suspects.lowest, suspects.lowest / 2)
    high = np.where(suspects.highest > 0, 2 * suspects.highest, suspects.highest / 2)

    def outside() -> bool:
        trials = np.concatenate(seen[2:])  # after the original and the first population
        return bool(((trials < low - 1e-6) | (trials > high + 1e-6)).any())

    wide = np.random.default_rng(0).normal(0, 5, (20, len(suspects)))
    run_from(wide, task, DifferentialEvolution(generations=5))
    assert not outside()
    seen.clear()
    run_from(wide, task, DifferentialEvolution.faithful(generations=5))
    assert outside()


def test_the_model_has_its_weights_back_when_the_search_is_interrupted(problem: Problem) -> None:
    before = problem.backend.get_weights("fc2")["weight"]

    def stop(state: SearchState) -> None:
        if state.history[-1].number == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        DifferentialEvolution(population=10).search(problem, rng=np.random.default_rng(0), on_state=stop)
    np.testing.assert_array_equal(problem.backend.get_weights("fc2")["weight"], before)


def test_deficits_are_whole_numbers_that_add_up_by_term(problem: Problem) -> None:
    values = np.stack([problem.suspects.values, problem.suspects.values + 0.5])
    found = problem.evaluator.evaluate(values)
    assert found.dtype == np.int64
    assert found.shape == (2, 2)
    assert found[0, 0] == 0  # the original gets every positive right
    assert found[0, 1] > 0
    assert (found[:, 1] <= len(problem.split.seen.negatives) * 10 * UNIT).all()


def test_a_population_too_small_for_three_donors_is_refused() -> None:
    with pytest.raises(UsageError, match="population must be 4 or more, got 3"):
        DifferentialEvolution(population=3)
