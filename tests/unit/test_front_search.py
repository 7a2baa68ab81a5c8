"""NSGA-II from keep's candidates on: what it keeps, and what it never does worse than."""

from __future__ import annotations

import numpy as np

from arachne.model.values import Array
from arachne.search import Front, MarginSearch, Problem
from arachne.search.front import not_dominated
from arachne.search.nsga2 import next_generation


def test_no_candidate_is_beaten_in_all_goals_and_none_claims_to_be_held_back(problem: Problem) -> None:
    found = Front(population=12, generations=4).search(problem, rng=np.random.default_rng(0))
    assert found.generations == MarginSearch().most_generations + 5
    assert found.better
    assert all(one.held_back is None for one in found.front)
    sizes = [float(np.linalg.norm(one.values - problem.suspects.values)) for one in found.front]
    assert min(sizes) > 0
    goals = [one.deficits.tolist() for one in found.front if one.deficits is not None]
    assert len(goals) == len(found.front) > 1


def test_the_best_in_each_goal_is_never_lost(problem: Problem) -> None:
    search, rng = Front(population=12, generations=4), np.random.default_rng(0)
    state = search.begin(problem, rng=rng)
    best: list[Array] = []
    while state.stopped is None:
        state = search.step(problem, state, rng=rng)
        if "goals" in state.arrays:
            best.append(state.arrays["goals"].min(axis=0))
    assert len(best) == 5
    assert (np.diff(best, axis=0) <= 0).all()


def test_a_generation_moves_towards_all_goals() -> None:
    rng = np.random.default_rng(0)

    def goals(members: Array) -> Array:
        return np.stack([((members - shift) ** 2).sum(axis=1) for shift in (-0.5, 0.0, 0.5)], axis=1)

    members = rng.uniform(-2, 2, (20, 4))
    now = goals(members)
    first = now.min(axis=0)
    for _ in range(30):
        members, now = next_generation(members, now, np.full(4, 2.0), goals, rng=rng)
    assert (now.min(axis=0) < 0.2 * first).all()
    np.testing.assert_array_equal(now, goals(members))
    assert np.abs(members).max() <= 2


def test_rows_that_another_beats_are_dropped_and_equals_stay() -> None:
    goals = np.array([[0, 3, 1], [1, 1, 1], [1, 2, 1], [0, 3, 1], [2, 0, 5]])
    assert not_dominated(goals) == [0, 1, 3, 4]
