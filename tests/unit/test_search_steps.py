"""A search is a value: it can be watched, written down, read back and continued, and gives the same patch."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from arachne.data.labelled import LabelledData
from arachne.data.split import split_by_outcome
from arachne.localise import Bidirectional, Selection
from arachne.model.values import Address
from arachne.scoring.evaluators import FastEvaluator, FitnessInputs, PlainEvaluator
from arachne.search import Candidate, DifferentialEvolution, Problem, Searcher, SearchResult, SearchState
from arachne.search.state import Generation, each_generation
from arachne.testing import ReferenceBackend, mlp, random_inputs

SEARCH = DifferentialEvolution(population=20, generations=15)


@pytest.fixture(scope="module", params=[PlainEvaluator, FastEvaluator], ids=["plain", "fast"])
def problem(request: pytest.FixtureRequest) -> Problem:
    """A random network asked to read as 0 some of what it reads as 1."""
    network = mlp([5, 8, 3], seed=4)
    backend = ReferenceBackend(network)
    inputs = random_inputs(network, 160, seed=2)
    predictions = backend.predict(inputs)
    labels = np.where((predictions == 1) & (np.asarray(inputs)[:, 0] > 0.3), 0, predictions)
    split = split_by_outcome(backend, LabelledData(inputs, labels), "0:1", rng=np.random.default_rng(0))
    suspects = Bidirectional(min_weights=4).localise(backend, split.seen, rng=np.random.default_rng(0)).suspects
    return Problem(backend, split, suspects, FitnessInputs.of(split.seen, split.seen.terms(10.0)), request.param)


def written_and_read(state: SearchState, rng: np.random.Generator) -> tuple[SearchState, np.random.Generator]:
    """State and generator from an npz and a text of JSON."""
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **state.all_arrays)
    text = json.dumps({"state": state.to_json(), "rng": rng.bit_generator.state})
    file.seek(0)
    plain = json.loads(text)
    with np.load(file, allow_pickle=False) as arrays:
        again = SearchState.from_json(arrays, plain["state"])
    generator = np.random.default_rng()
    generator.bit_generator.state = plain["rng"]
    return again, generator


@pytest.mark.parametrize("stop_at", [0, 1, 7])
def test_a_search_that_was_written_down_goes_on_as_if_nothing_had_happened(problem: Problem, stop_at: int) -> None:
    whole = SEARCH.search(problem, rng=np.random.default_rng(0))
    rng = np.random.default_rng(0)
    state = SEARCH.begin(problem, rng=rng)
    for _ in range(stop_at):
        state = SEARCH.step(problem, state, rng=rng)
    state, generator = written_and_read(state, rng)
    another_process = problem.with_suspects(problem.suspects)  # which has an evaluator of its own
    found = SEARCH.search(another_process, rng=generator, state=state)
    assert found.values.tobytes() == whole.values.tobytes()
    np.testing.assert_array_equal(found.deficits, whole.deficits)
    assert (found.history, found.stopped) == (whole.history, whole.stopped)


def test_a_step_changes_nothing_of_the_state_it_starts_from(problem: Problem) -> None:
    state = SEARCH.begin(problem, rng=np.random.default_rng(0))
    before = {name: array.copy() for name, array in state.arrays.items()}
    first, again = (SEARCH.step(problem, state, rng=np.random.default_rng(1)) for _ in range(2))
    for name, array in before.items():
        np.testing.assert_array_equal(state.arrays[name], array)
        np.testing.assert_array_equal(first.arrays[name], again.arrays[name])
    assert first.history == again.history
    assert len(state.history) == 1


def test_every_state_is_told_from_the_first_population_on(problem: Problem) -> None:
    told: list[SearchState] = []
    result = SEARCH.search(problem, rng=np.random.default_rng(0), on_state=told.append)
    assert [len(state.history) for state in told] == list(range(1, len(result.history) + 1))
    assert [state.stopped is None for state in told] == [True] * (len(told) - 1) + [False]
    assert told[-1].history == result.history


def test_a_search_that_has_stopped_takes_no_further_step(problem: Problem) -> None:
    told: list[SearchState] = []
    SEARCH.search(problem, rng=np.random.default_rng(0), on_state=told.append)
    rng = np.random.default_rng(5)
    before = rng.bit_generator.state
    again = SEARCH.search(problem, rng=rng, state=told[-1])
    assert again.history == told[-1].history
    assert rng.bit_generator.state == before


def test_each_generation_is_told_once_however_many_a_step_adds() -> None:
    numbers: list[int] = []
    generations = tuple(Generation(number, 0.0, 0, 0, 0, 0) for number in range(4))
    on_state = each_generation(lambda generation: numbers.append(generation.number))
    for until in (1, 1, 4):
        on_state(SearchState({}, history=generations[:until]))
    assert numbers == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("arrays", "values"),
    [
        ({"members": [1.0, 2.0]}, {}),
        ({"members": np.array([{}], dtype=object)}, {}),
        ({}, {"unchanged": np.int64(1)}),
        ({}, {"limits": (1, 2)}),
    ],
)
def test_a_state_that_could_not_be_written_down_is_refused(arrays: Any, values: Any) -> None:
    with pytest.raises(TypeError, match="of a search's state should be"):
        SearchState(arrays, values)


class OtherWeight(Searcher):
    """Changes a weight it was not given, and measures nothing itself."""

    name = "other"

    def begin(self, problem: Problem, *, rng: np.random.Generator) -> SearchState:
        return SearchState({"values": rng.standard_normal(2)}, stopped="one try is enough")

    def step(self, problem: Problem, state: SearchState, *, rng: np.random.Generator) -> SearchState:
        raise AssertionError("it has stopped")

    def result(self, problem: Problem, state: SearchState) -> SearchResult:
        elsewhere = (Address("fc2", "bias", (1,)), Address("fc1", "bias", (0,)))
        unchanged = Candidate(problem.suspects, problem.suspects.values)
        return problem.result(state, Candidate.at(problem.backend, elsewhere, state.arrays["values"]), unchanged)


def never(*_: Any) -> PlainEvaluator:
    raise AssertionError("nobody asked for an evaluator")


def test_a_search_may_return_weights_it_was_not_given_and_needs_no_evaluator(problem: Problem) -> None:
    task = replace(problem, make_evaluator=never)
    found = OtherWeight().search(task, rng=np.random.default_rng(3))
    assert found.addresses == (Address("fc1", "bias", (0,)), Address("fc2", "bias", (1,)))  # in candidate order
    drawn = np.random.default_rng(3).standard_normal(2)
    np.testing.assert_array_equal(found.values, drawn[::-1].astype(np.float32))
    suspects = Selection.of(problem.backend, found.addresses)
    expected = PlainEvaluator(problem.backend, problem.fitness_inputs, suspects).evaluate(found.values[None])[0]
    np.testing.assert_array_equal(found.deficits, expected)
    assert found.fitness == problem.fitness(expected)


def test_the_figures_of_a_result_are_those_of_the_chosen_candidate(problem: Problem) -> None:
    found = OtherWeight().search(problem, rng=np.random.default_rng(3))
    unchanged = replace(found, chosen=1)
    assert unchanged.addresses == problem.suspects.addresses
    np.testing.assert_array_equal(unchanged.deficits, found.original)
    assert unchanged.fitness == found.original_fitness != found.fitness
    assert not unchanged.better
