"""Runs shared out among processes: the same states and patches for any number, whatever becomes of the others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import arachne
from arachne.data.split import split_by_outcome
from arachne.localise import Contrast
from arachne.scoring.evaluators import FastEvaluator
from arachne.search import Problem, SearchState, ahead
from arachne.search.ahead import Ahead, copy_generator
from arachne.search.build import build_problem
from arachne.search.forked import Team, can_fork
from arachne.search.idle import IdleWatch
from arachne.settings import make_searcher
from arachne.testing import ReferenceBackend
from tests.backends import golden

pytestmark = pytest.mark.skipif(not can_fork(), reason="processes are forked on Linux alone")

PARENT = os.getpid()


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use other processes however short a run is."""
    monkeypatch.setattr(ahead, "MIN_SECONDS", 0.0)
    monkeypatch.setattr(ahead, "MIN_SECONDS_TO_FORK", 0.0)


@pytest.fixture
def problem() -> Problem:
    backend, data = ReferenceBackend(golden.network("mlp")), golden.digits()
    split = split_by_outcome(backend, data, "*:8", rng=np.random.default_rng(0))
    suspects = Contrast().localise(backend, split.seen, rng=np.random.default_rng(0)).suspects
    return build_problem(backend, split, suspects, 10.0, FastEvaluator)


@pytest.fixture
def takes(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each result that a search asked for, whether another process had computed it."""
    found: list[bool] = []
    take = Ahead.take

    def note(self: Ahead, *given: Any, **named: Any) -> Any:
        found.append((value := take(self, *given, **named)) is not None)
        return value

    monkeypatch.setattr(Ahead, "take", note)
    return found


def states_of(
    problem: Problem, name: str, processes: int, *, until: int = 10**9
) -> tuple[list[SearchState], dict[str, Any]]:
    """All states of a search, and its generator's at the end."""
    found: list[SearchState] = []
    rng = np.random.default_rng(3)
    options: dict[str, Any] = {} if name == "erase" else {"steps": 24, "batch": 60}
    searcher = make_searcher(name, folds=4, **options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ARACHNE_THREADS", str(processes))
        searcher.search(problem, rng=rng, on_state=found.append, stop=lambda: "enough" if len(found) > until else None)
    return found, dict(rng.bit_generator.state)


def bits_of(states: list[SearchState]) -> list[Any]:
    return [(state.to_json(), {key: array.tobytes() for key, array in state.all_arrays.items()}) for state in states]


def no_process_is_left() -> bool:
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return True
    return False


@pytest.mark.parametrize("name", ["margin", "last-layer", "tune@anchored", "erase", "low-rank", "gates"])
def test_every_state_is_the_same_for_any_number_of_processes(problem: Problem, name: str, takes: list[bool]) -> None:
    alone, random = states_of(problem, name, 1)
    assert len(alone) > 3
    assert not any(takes)
    for processes in (2, 3, 4):
        takes.clear()
        states, own = states_of(problem, name, processes)
        assert own == random
        assert bits_of(states) == bits_of(alone)
        assert sum(takes) >= len(takes) // 4  # a good part was computed elsewhere
        assert no_process_is_left()


def test_a_search_that_ends_early_leaves_no_process_behind(problem: Problem) -> None:
    states, _ = states_of(problem, "margin", 4, until=2)
    assert states[-1].stopped == "enough"
    assert no_process_is_left()


def test_a_search_that_is_interrupted_leaves_no_process_behind(
    problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(state: SearchState) -> None:
        if len(state.history) > 2:
            raise KeyboardInterrupt

    searcher = make_searcher("margin", steps=24)
    monkeypatch.setenv("ARACHNE_THREADS", "2")
    with pytest.raises(KeyboardInterrupt):
        searcher.search(problem, rng=np.random.default_rng(3), on_state=interrupt)
    assert os.getpid() == PARENT
    assert no_process_is_left()


def test_a_search_goes_on_from_any_state(problem: Problem, monkeypatch: pytest.MonkeyPatch, takes: list[bool]) -> None:
    monkeypatch.setenv("ARACHNE_THREADS", "2")
    searcher = make_searcher("margin", steps=24, folds=4)
    rng = np.random.default_rng(3)
    kept: list[tuple[SearchState, Any]] = []
    whole = searcher.search(problem, rng=rng, on_state=lambda state: kept.append((state, rng.bit_generator.state)))
    for state, random in kept[1:-1:3]:
        rng.bit_generator.state = random
        resumed = searcher.search(problem, rng=rng, state=state)
        assert resumed.values.tobytes() == whole.values.tobytes()
        assert resumed.history == whole.history
    assert any(takes)


@pytest.mark.parametrize("fate", ["fails", "hangs", "draws otherwise"])
def test_a_process_that_fails_costs_nothing_but_time(
    problem: Problem, monkeypatch: pytest.MonkeyPatch, fate: str
) -> None:
    alone, random = states_of(problem, "margin", 1)
    give = Team.give

    def spoil(self: Team, value: Any) -> None:
        if self.rank and fate == "fails":
            raise MemoryError
        if self.rank and fate == "hangs":
            time.sleep(60)
        if self.rank and fate == "draws otherwise":
            value = (value[0], {"state": 1}, *value[2:])
        give(self, value)

    monkeypatch.setattr(Team, "give", spoil)
    monkeypatch.setattr(ahead, "MIN_WAIT", 0.2)
    states, own = states_of(problem, "margin", 2)
    assert own == random
    assert bits_of(states) == bits_of(alone)
    assert no_process_is_left()


def test_a_process_that_cannot_be_set_up_never_does_what_is_the_parents(
    problem: Problem, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    alone, _ = states_of(problem, "margin", 1)

    def fail(number: int) -> int:
        if os.getpid() != PARENT:
            raise ValueError("not here")
        return -1

    monkeypatch.setattr(signal, "set_wakeup_fd", fail)
    monkeypatch.setattr(ahead, "MIN_WAIT", 0.2)
    states, _ = states_of(problem, "margin", 2)
    with (tmp_path / "after").open("a") as file:
        file.write(f"{os.getpid()}\n")
    assert bits_of(states) == bits_of(alone)
    assert (tmp_path / "after").read_text() == f"{PARENT}\n"
    assert no_process_is_left()


def test_a_search_in_a_thread_shares_its_runs_too(problem: Problem, takes: list[bool]) -> None:
    alone, _ = states_of(problem, "margin", 1)
    with ThreadPoolExecutor(1) as threads:
        states, _ = threads.submit(states_of, problem, "margin", 2).result()
    assert bits_of(states) == bits_of(alone)
    assert any(takes)
    assert no_process_is_left()


def test_nothing_is_shared_where_no_process_can_be_had(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    alone, _ = states_of(problem, "margin", 1)

    def refuse() -> int:
        raise BlockingIOError("no more processes")

    monkeypatch.setattr(os, "fork", refuse)
    open_before = len(os.listdir("/proc/self/fd"))
    assert bits_of(states_of(problem, "margin", 2)[0]) == bits_of(alone)
    assert len(os.listdir("/proc/self/fd")) == open_before


def test_no_model_runs_in_another_process(problem: Problem, monkeypatch: pytest.MonkeyPatch, takes: list[bool]) -> None:
    """It ends before, and the next runs that are worth it are shared with a new one."""
    alone, _ = states_of(problem, "margin", 1)
    inputs = problem.split.seen.data.inputs
    running, sizes = ReferenceBackend._forward, []
    make = Team.__init__

    def run(self: ReferenceBackend, given: Any) -> Any:
        assert os.getpid() == PARENT
        return running(self, given)

    def count(self: Team, size: int) -> None:
        sizes.append(size)
        make(self, size)

    correct = type(problem.fitness_inputs).correct

    def run_the_model_too(*given: Any) -> Any:
        if takes and takes[-1]:
            problem.backend.forward(inputs)
        return correct(*given)

    monkeypatch.setattr(ReferenceBackend, "_forward", run)
    monkeypatch.setattr(Team, "__init__", count)
    monkeypatch.setattr(type(problem.fitness_inputs), "correct", run_the_model_too)
    assert bits_of(states_of(problem, "margin", 2)[0]) == bits_of(alone)
    assert sizes == [2]
    assert no_process_is_left()


@pytest.mark.parametrize(("idle", "shared"), [(0.3, False), (0.9, True), (None, True)])
def test_a_search_leaves_processors_to_others_unless_told_how_many(
    problem: Problem, monkeypatch: pytest.MonkeyPatch, takes: list[bool], idle: float | None, shared: bool
) -> None:
    monkeypatch.delenv("ARACHNE_THREADS", raising=False)
    monkeypatch.setattr(ahead, "allowed_threads", lambda: 2)
    monkeypatch.setattr(IdleWatch, "idle_processors", lambda self: idle)
    make_searcher("margin", steps=24).search(problem, rng=np.random.default_rng(3))
    assert any(takes) == shared


def test_idle_processors_are_counted() -> None:
    watch = IdleWatch()
    assert watch.idle_processors() is None  # too early to tell
    time.sleep(0.3)
    found = watch.idle_processors()
    assert found is None or 0 <= found <= len(os.sched_getaffinity(0)) + 0.2


def in_a_team(work: Callable[[Team], None]) -> Team:
    """A team of two, of which the other does some work."""
    team = Team(2)
    if team.rank:
        try:
            work(team)
        finally:
            os._exit(0)
    return team


def test_values_come_in_order_and_end() -> None:
    def work(team: Team) -> None:
        for number in range(5):
            team.give(np.full(200_000, number))

    team = in_a_team(work)
    for number in range(5):
        assert (team.receive(1, 20.0) == number).all()
    with pytest.raises(TimeoutError):
        team.receive(1, 20.0)
    assert not team.is_whole()
    team.end()
    assert no_process_is_left()


def test_a_process_does_not_hear_what_its_parent_is_told() -> None:
    def work(team: Team) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        team.give("still here")
        team.receive(0, 0.0)

    team = in_a_team(work)
    assert team.receive(1, 20.0) == "still here"
    assert team.is_whole()
    team.end()


def test_a_process_ends_with_its_parent() -> None:
    program = """
import os, time
from arachne.search.forked import Team
team = Team(2)
if team.rank:
    team.give(os.getpid())
    time.sleep(60)
print(team.receive(1, 20.0), flush=True)
time.sleep(60)
"""
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    number = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    for _ in range(200):
        if not is_running(number):
            return
        time.sleep(0.05)
    raise AssertionError(f"process {number} goes on")


def is_running(number: int) -> bool:
    """Whether a process computes or waits; one that has ended may still be listed."""
    try:
        with open(f"/proc/{number}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_copied_generator_draws_the_same() -> None:
    rng = np.random.default_rng(5)
    rng.integers(10, size=3)
    other = copy_generator(rng)
    assert rng.random(4).tolist() == other.random(4).tolist()


def test_a_repair_gives_the_same_patch_for_any_number_of_processes(
    monkeypatch: pytest.MonkeyPatch, takes: list[bool]
) -> None:
    members = ("bias", "erase", "margin@hidden", "low-rank", "gates")
    searcher, found = make_searcher("auto", members=members), []
    for processes in ("1", "2", "4"):
        monkeypatch.setenv("ARACHNE_THREADS", processes)
        takes.clear()
        backend = ReferenceBackend(golden.network("mlp"))
        result = arachne.repair(backend, golden.digits(), "*:8", searcher=searcher, max_break=0.05, seed=0)
        found.append([str(one) for one in result.patch.entries])
        assert any(takes) == (processes != "1")
        assert no_process_is_left()
    assert found[0] == found[1] == found[2] != []
