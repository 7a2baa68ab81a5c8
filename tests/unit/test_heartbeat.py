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


def generation(number: int, repaired: int = 12, broken: int = 1) -> Generation:
    return Generation(number, fitness=7.3, repaired=repaired, broken=broken, evaluations=100, replaced=3)


def test_the_time_left_is_that_of_the_slowest_part_of_the_run() -> None:
    clock = Clock()
    heart = Heartbeat(print, 100, clock=clock)
    heart.step("search")
    clock.now = 50
    heart.generation(generation(0))  # the first population takes its own time
    assert heart.line() == "search: 50 s, step 0 of 100, best so far 12 repaired, 1 broken"
    for number in range(1, 21):  # a quick search
        clock.now += 0.5
        heart.generation(generation(number))
    assert heart.line().endswith(f"step 20 of 100, best so far 12 repaired, 1 broken; about {duration(40)} left")
    for number in range(21, 41):  # a slow one
        clock.now += 3
        heart.generation(generation(number))
    assert heart.line().endswith(f"; about {duration(180)} left")
    for number in range(41, 61):  # a quick one again, and others may follow
        clock.now += 0.5
        heart.generation(generation(number))
    assert heart.line().endswith(f"; about {duration(120)} left")


def test_no_time_is_told_at_the_beginning() -> None:
    clock = Clock()
    heart = Heartbeat(print, 100, clock=clock)
    heart.step("search")
    for number in range(20):
        clock.now += 0.1
        heart.generation(generation(number))
    assert "left" not in heart.line()


def test_a_step_that_hangs_says_so() -> None:
    clock = Clock()
    heart = Heartbeat(print, 100, clock=clock)
    heart.step("search")
    for number in range(20):
        clock.now += 1
        heart.generation(generation(number))
    clock.now += 400
    assert heart.line().startswith("search: 7 min, step 19")
    assert heart.line().endswith(f"; about {duration(400 / 8 * 81 - 400)} left")


def test_the_best_patch_so_far_is_told_and_no_probe() -> None:
    heart = Heartbeat(print, None)
    heart.step("search")
    heart.generation(generation(0, 83, 672))
    assert "best" not in heart.line()
    heart.generation(generation(1, 40, 2))
    heart.generation(generation(2, 83, 70))
    assert heart.line().endswith("step 2, best so far 40 repaired, 2 broken")


def test_a_step_without_generations_says_how_long_it_runs() -> None:
    clock = Clock()
    heart = Heartbeat(print, None, clock=clock)
    heart.step("localise")
    clock.now = 200
    assert heart.line() == "localise: 3 min"
    heart.generation(generation(4))
    assert "left" not in heart.line()


def test_lines_come_from_a_thread_that_ends_with_the_run() -> None:
    told, heard = [], threading.Event()

    def say(line: str) -> None:
        told.append(line)
        if line.startswith("measure"):  # a line may come before the step
            heard.set()

    with Heartbeat(say, None, every=0.01) as heart:
        heart.step("measure")
        assert heard.wait(20)
    assert "measure: 0 s" in told
    assert "arachne-heartbeat" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.parametrize("quiet", [False, True])
def test_nothing_is_said_to_have_begun_without_a_terminal(quiet: bool) -> None:
    error = io.StringIO()
    with redirect_stderr(error):
        output = Output()
        output.quiet = quiet
        with output.progress("read the data", 3) as on_generation:
            output.step("search")
            on_generation(generation(1))
        output.step("exporting")
    assert error.getvalue() == "" if quiet else "exporting …\n"


def test_durations_are_rounded_as_people_say_them() -> None:
    assert [duration(seconds) for seconds in (4.4, 89, 91, 3600, 11100)] == [
        "4 s",
        "89 s",
        "2 min",
        "60 min",
        "3 h 5 min",
    ]
