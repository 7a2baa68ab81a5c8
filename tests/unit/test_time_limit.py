"""A search that is ended early hands back what it has by then."""

from __future__ import annotations

import click
import numpy as np
import pytest

from arachne.cli.options import DURATION
from arachne.data.labelled import LabelledData
from arachne.engine import repair
from arachne.errors import NothingWithinBudgetError, UsageError
from arachne.search import DifferentialEvolution, MarginSearch, Pool, Problem, Searcher
from arachne.settings import Settings
from arachne.testing import ReferenceBackend


class After:
    """A reason to stop, after some steps."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def __call__(self) -> str | None:
        self.left -= 1
        return "enough" if self.left <= 0 else None


@pytest.mark.parametrize("steps", [1, 4, 9])
@pytest.mark.parametrize(
    "search", [MarginSearch(steps=48, folds=3), Pool(), DifferentialEvolution()], ids=lambda one: one.name
)
def test_a_search_ends_when_it_is_told_to(problem: Problem, search: Searcher, steps: int) -> None:
    found = search.search(problem, rng=np.random.default_rng(0), stop=After(steps))
    assert found.generations == steps
    assert found.stopped.startswith("enough")


@pytest.mark.parametrize("steps", [3, 6, 10, 17])
def test_the_front_of_unfinished_runs_is_the_mean_of_those_that_got_so_far(problem: Problem, steps: int) -> None:
    search = MarginSearch(steps=48, folds=3)  # six points in each of three runs
    rng = np.random.default_rng(0)
    state = search.begin(problem, rng=rng)
    changes: list[list[np.ndarray]] = [[] for _ in range(search.points)]
    for number in range(steps):
        before = state.arrays["path"]
        state = search.step(problem, state, rng=rng)
        point = number % search.points
        changes[point].append((state.arrays["path"] - before)[point] * search.folds)
    found = search.result(problem, state)
    assert found.better
    assert all(candidate.held_back is None for candidate in found.front)
    means = [np.mean(own, axis=0) for own in changes if own]
    expected = [
        problem.round_to_storage(
            problem.suspects.values + np.rint(search.GRID * share * mean) / search.GRID * state.arrays["scale"]
        ).tolist()
        for mean in means
        for share in (1.0, 0.75, 0.5)
    ]
    assert all(candidate.values.tolist() in expected for candidate in found.front)


def test_a_repair_without_time_still_answers(digits: LabelledData, model: ReferenceBackend) -> None:
    for searcher in (Pool(), MarginSearch()):
        try:
            result = repair(model, digits, "8:1", settings=Settings(searcher=searcher, time_limit=0))
        except NothingWithinBudgetError as nothing:
            result = nothing.result
        assert result.search.generations == 1
        assert result.search.stopped == "the time limit of 0 s was reached"
        assert result.patch.provenance["settings"]["time_limit"] == 0


def test_a_time_limit_is_no_negative_number() -> None:
    with pytest.raises(UsageError, match="time_limit must be 0 seconds or more, got -1"):
        Settings(time_limit=-1)


@pytest.mark.parametrize(("text", "seconds"), [("60s", 60), ("2min", 120), ("5m", 300), ("90", 90), ("0.5 h", 1800)])
def test_durations_have_units(text: str, seconds: float) -> None:
    assert DURATION.convert(text, None, None) == seconds


def test_what_is_no_duration_is_refused() -> None:
    with pytest.raises(click.BadParameter, match="expected a duration such as 60s or 2min, got 'soon'"):
        DURATION.convert("soon", None, None)
