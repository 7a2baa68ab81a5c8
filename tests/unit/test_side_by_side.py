"""Work in several threads: results in order, whatever ends first, and never more at once than asked for."""

from __future__ import annotations

import threading
import time

import pytest

from arachne.adapting import side_by_side
from arachne.adapting.side_by_side import run_side_by_side


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use threads however short a piece of work is."""
    monkeypatch.setattr(side_by_side, "MIN_SECONDS", 0.0)


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_results_come_in_the_order_of_the_items(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARACHNE_THREADS", str(threads))
    seen: set[str] = set()

    def work(item: int) -> int:
        seen.add(threading.current_thread().name)
        time.sleep(0.002 * (item % 3 == 0))
        return item**2

    assert list(run_side_by_side(work, range(20), lambda: work)) == [item**2 for item in range(20)]
    apart = {name for name in seen if name.startswith("arachne-batch")}
    assert len(apart) <= threads
    assert bool(apart) == (threads > 1)
    assert threading.main_thread().name in seen


def test_items_are_taken_as_they_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARACHNE_THREADS", "2")
    taken: list[int] = []
    items = (taken.append(number) or number for number in range(100))  # type: ignore[func-returns-value]
    results = run_side_by_side(lambda item: item, items, lambda: lambda item: item)
    assert [next(results), next(results)] == [0, 1]
    assert len(taken) <= 5


def test_an_error_in_a_thread_is_raised_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARACHNE_THREADS", "2")

    def work(item: int) -> int:
        if item == 7:
            raise ValueError("seven")
        return item

    found: list[int] = []
    with pytest.raises(ValueError, match="seven"):
        found.extend(run_side_by_side(work, range(20), lambda: work))
    assert found == list(range(7))


def test_short_work_stays_in_this_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(side_by_side, "MIN_SECONDS", 1e9)
    monkeypatch.setenv("ARACHNE_THREADS", "4")

    def beside() -> None:
        raise AssertionError("nobody asks")

    assert list(run_side_by_side(lambda item: item, range(5), beside)) == [0, 1, 2, 3, 4]
