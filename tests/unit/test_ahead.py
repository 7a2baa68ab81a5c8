"""Runs computed ahead in other threads: the same states and patches for any number of them."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import arachne
from arachne.data.split import split_by_outcome
from arachne.localise import Contrast
from arachne.scoring.evaluators import FastEvaluator
from arachne.search import Problem, SearchState
from arachne.search.ahead import AHEAD, THREADS, Ahead, usable_threads, working_ahead
from arachne.search.build import build_problem
from arachne.settings import make_searcher
from arachne.testing import ReferenceBackend
from tests.backends import golden


@pytest.fixture
def problem() -> Problem:
    backend, data = ReferenceBackend(golden.network("mlp")), golden.digits()
    split = split_by_outcome(backend, data, "*:8", rng=np.random.default_rng(0))
    suspects = Contrast().localise(backend, split.seen, rng=np.random.default_rng(0)).suspects
    return build_problem(backend, split, suspects, 10.0, FastEvaluator)[0]


def states_of(problem: Problem, name: str, *, threads: int, until: int = 10**9) -> tuple[list[SearchState], object]:
    """All states of a search, and its generator at the end."""
    found: list[SearchState] = []
    rng = np.random.default_rng(3)
    problem.shared[AHEAD] = ahead = Ahead(threads)
    searcher = make_searcher(name, steps=24, folds=4, batch=60)
    searcher.search(problem, rng=rng, on_state=found.append, stop=lambda: "enough" if len(found) > until else None)
    ahead.end()
    return found, rng.bit_generator.state


@pytest.mark.parametrize("name", ["margin", "last-layer", "low-rank"])
def test_every_state_is_the_same_for_any_number_of_threads(problem: Problem, name: str) -> None:
    (alone, random), *others = (states_of(problem, name, threads=threads) for threads in (1, 2, 4))
    for states, own in others:
        assert own == random
        assert len(states) == len(alone) > 3
        for one, other in zip(alone, states, strict=True):
            assert one.to_json() == other.to_json()
            assert {key: array.tobytes() for key, array in one.all_arrays.items()} == {
                key: array.tobytes() for key, array in other.all_arrays.items()
            }


def test_runs_are_computed_in_other_threads(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    used: set[str] = set()
    scorer = problem.scorer
    own = type(scorer).gradients

    def gradients(*given: object) -> object:
        used.add(threading.current_thread().name)
        return own(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(type(scorer), "gradients", gradients)
    states_of(problem, "margin", threads=1)
    assert len(used) == 1
    states_of(problem, "margin", threads=2)
    assert len(used) == 3  # folds 1 and 3, each in a thread of its own


def test_a_search_that_ends_early_leaves_no_thread_behind(problem: Problem) -> None:
    before = threading.active_count()
    states, _ = states_of(problem, "margin", threads=4, until=2)
    assert states[-1].stopped == "enough"
    assert threading.active_count() == before


def test_a_search_goes_on_from_any_state_with_other_threads(problem: Problem) -> None:
    searcher = make_searcher("margin", steps=24, folds=4)
    rng, kept = np.random.default_rng(3), []
    whole = searcher.search(problem, rng=rng, on_state=lambda state: kept.append((state, rng.bit_generator.state)))
    for state, random in kept[1:-1:3]:
        rng.bit_generator.state = random
        with working_ahead(problem):
            resumed = searcher.search(problem, rng=rng, state=state)
        assert resumed.values.tobytes() == whole.values.tobytes()
        assert resumed.history == whole.history


def test_an_error_in_a_thread_is_raised_where_its_result_is_taken() -> None:
    def fail(rng: np.random.Generator) -> object:
        raise MemoryError("too large")
        yield

    ahead, rng = Ahead(2), np.random.default_rng(0)
    ahead.begin("run", rng.bit_generator.state, fail)  # type: ignore[arg-type]
    with pytest.raises(MemoryError, match="too large"):
        ahead.take("run", rng)


def test_a_run_with_other_random_numbers_is_forgotten() -> None:
    ahead, rng = Ahead(2), np.random.default_rng(0)
    ahead.begin("run", np.random.default_rng(1).bit_generator.state, lambda own: iter([own.random()]))
    assert ahead.take("run", rng) is None


def test_a_repair_gives_the_same_patch_for_any_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    searcher, found = make_searcher("auto", members=("bias", "erase", "margin@hidden", "low-rank")), []
    for threads in ("1", "2", "4"):
        monkeypatch.setenv(THREADS, threads)
        assert usable_threads() == int(threads)
        backend = ReferenceBackend(golden.network("mlp"))
        result = arachne.repair(backend, golden.digits(), "*:8", searcher=searcher, max_break=0.05)
        found.append([str(one) for one in result.patch.entries])
    assert found[0] == found[1] == found[2] != []
