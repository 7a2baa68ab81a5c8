"""A run without a terminal says that it lives, how far it is and how long it may still take."""

from __future__ import annotations

import io
import threading
from contextlib import redirect_stderr

import pytest

from arachne.cli.console import Output
from arachne.cli.progress_log import Heartbeat, duration
from arachne.search import Generation


class Clock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def generation(number: int) -> Generation:
    return Generation(number, fitness=7.3, repaired=12, broken=1, evaluations=100, replaced=3)


def test_the_time_left_is_learnt_from_the_run() -> None:
    clock = Clock()
    heart = Heartbeat(print, 100, clock=clock)
    heart.step("search")
    clock.now = 50
    heart.generation(generation(0))  # the first population takes its own time
    assert heart.line().endswith("generation 0 of 100, fitness 7.30, 12 repaired, 1 broken")
    clock.now = 60
    heart.generation(generation(10))
    assert heart.line().startswith("search: 60 s so far, generation 10 of 100, fitness 7.30, 12 repaired, 1 broken")
    assert heart.line().endswith("; at most 90 s left".replace("90 s", duration(90)))
    clock.now = 80  # slower from here on
    heart.generation(generation(20))
    assert heart.line().endswith(f"at most {duration(30 / 20 * 80)} left")


def test_a_step_without_generations_says_how_long_it_runs() -> None:
    clock = Clock()
    heart = Heartbeat(print, None, clock=clock)
    heart.step("localise")
    clock.now = 200
    assert heart.line() == "localise: 3 min so far"
    heart.generation(generation(4))
    assert "left" not in heart.line()


def test_lines_come_from_a_thread_that_ends_with_the_run() -> None:
    told, heard = [], threading.Event()

    def say(line: str) -> None:
        told.append(line)
        heard.set()

    with Heartbeat(say, None, every=0.01) as heart:
        heart.step("measure")
        heard.wait(20)
    assert "so far" in told[0]
    assert "arachne-heartbeat" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.parametrize(("quiet", "lines"), [(False, ["localise …", "search …"]), (True, [])])
def test_steps_are_told_without_a_terminal(quiet: bool, lines: list[str]) -> None:
    error = io.StringIO()
    with redirect_stderr(error):
        output = Output(as_json=False, quiet=quiet)
        with output.search_progress(3) as on_generation:
            output.step("localise")
            output.step("search")
            on_generation(generation(1))
    assert error.getvalue().splitlines() == lines


def test_durations_are_rounded_as_people_say_them() -> None:
    assert [duration(seconds) for seconds in (4.4, 89, 91, 3600, 11100)] == [
        "4 s",
        "89 s",
        "2 min",
        "60 min",
        "3 h 5 min",
    ]
