"""Effort counted in passes: what members may take, and what they do with less."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from arachne.data.split import split_by_outcome
from arachne.localise import Contrast
from arachne.scoring.evaluators import FastEvaluator
from arachne.search import Pool, Problem, SearchState, effort
from arachne.search.build import build_problem
from arachne.search.gradient import MIN_STEPS
from arachne.search.pool import MOST, SPENT
from arachne.settings import make_searcher
from arachne.testing import ReferenceBackend
from tests.backends import golden


def problem_of(kind: str) -> Problem:
    """The problem of a small network's most frequent mistake."""
    backend = ReferenceBackend(golden.network(kind))
    split = split_by_outcome(backend, golden.data_for(kind), "top:2", rng=np.random.default_rng(0))
    suspects = Contrast().localise(backend, split.seen, rng=np.random.default_rng(0)).suspects
    return build_problem(backend, split, suspects, 10.0, FastEvaluator)


def test_multiplications_are_those_of_each_layer() -> None:
    assert effort.multiplications(problem_of("cnn")) == {"first": 36 * 6 * 9, "head": 540}
    assert effort.multiplications(problem_of("words")) == {"table": 0, "head": 1920}


def test_only_the_share_behind_a_cut_counts_and_nothing_in_the_tail() -> None:
    problem = problem_of("cnn")
    assert effort.share_behind(problem, ["first"]) == 1
    assert effort.share_behind(problem, ["head"]) == 0
    assert make_searcher("bias").passes(problem) == 0


def test_a_member_with_less_to_spend_takes_fewer_and_longer_steps() -> None:
    problem, whole = problem_of("cnn"), make_searcher("margin@conv")
    wanted = whole.passes(problem)
    assert whole.within(problem, wanted) == whole
    fewer = whole.within(problem, wanted / 2)
    assert fewer is not None
    found = fewer.to_json()
    assert MIN_STEPS <= found["steps"] < whole.to_json()["steps"]
    assert found["pace"] == whole.to_json()["steps"] / found["steps"]
    assert fewer.passes(problem) <= wanted / 2
    assert whole.within(problem, 0.1) is None


def test_steps_over_very_many_weights_count_in_the_tail_too(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, search = problem_of("cnn"), make_searcher("last-layer")
    assert search.passes(problem) == 0
    monkeypatch.setattr(effort, "MANY_WEIGHTS", 500)
    assert search.passes(problem) > 10


def test_a_pool_writes_down_what_its_members_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effort, "FREE_MULTIPLICATIONS", 0.0)
    monkeypatch.setitem(effort.EFFORTS, "quick", 120.0)
    problem = problem_of("cnn")
    pool = Pool(members=("bias", "margin@conv"), effort="quick")
    states: list[SearchState] = []
    pool.search(problem, rng=np.random.default_rng(0), on_state=states.append)
    own = states[-1]
    assert own.values[f"{MOST}margin@conv"] == 60
    assert 0 < float(own.values[f"{SPENT}margin@conv"] or 0) <= 60
    assert own.members["margin@conv"].history
    monkeypatch.setitem(effort.EFFORTS, "quick", 1.0)
    pool.search(problem, rng=np.random.default_rng(0), on_state=states.append)
    assert str(states[-1].members["margin@conv"].stopped).endswith("where 0.5 are left at the effort 'quick'")
    assert "left out" in str(states[-1].members["margin@conv"].stopped)


def test_large_models_run_fewer_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effort, "FREE_MULTIPLICATIONS", 0.0)
    problem = problem_of("cnn")
    one_pass = sum(effort.multiplications(problem).values()) * len(problem.split.seen)
    assert effort.allowance(problem, "normal") == 12
    monkeypatch.setitem(effort.MOST_MULTIPLICATIONS, "normal", 3 * one_pass)
    assert effort.allowance(problem, "normal") == 3
    assert effort.allowance(problem, "thorough") == float("inf")


def test_weights_are_not_chosen_where_steps_among_them_would_take_too_many_passes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(effort, "FREE_MULTIPLICATIONS", 0.0)
    monkeypatch.setitem(effort.EFFORTS, "normal", 0.1)
    problem = problem_of("cnn")
    whole = problem.with_suspects(
        Contrast(depth="all").localise(problem.backend, problem.split.seen, rng=np.random.default_rng(0)).suspects
    )
    pool = Pool(members=("bias", "margin", "margin@fisher"))
    states: list[SearchState] = []
    pool.search(whole, rng=np.random.default_rng(0), on_state=states.append)
    found = states[-1]
    assert str(found.members["margin"].stopped).startswith("left out: it would run the model")
    assert found.members["margin@fisher"].history  # the last layer alone, in which steps run no model
    deep = replace(whole, allowed=replace(whole.allowed, include=("first",)))
    assert pool._takes_long(deep, found)
    assert not pool._takes_long(whole, found)
