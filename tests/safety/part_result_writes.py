"""Every call of the system that a result is written with fails once, or is the last one of its run."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from tests.safety.part_checkpoint_writes import FAULTS
from tests.safety.results import WRITERS, Replaced, replaced
from tests.safety.rows import Row
from tests.safety.runs import Runs

ORDER = 24


def run(seed: int, jobs: int) -> Iterator[Row]:
    tried = [(writer, fault) for writer in WRITERS for fault in FAULTS]
    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(_row, tried)


def _row(which: tuple[str, str]) -> Row:
    writer, fault = which
    attack = f"{fault} at each call of a result write ({writer} over an older one)"
    with Runs() as runs, replaced(runs, WRITERS[writer]) as one:
        if runs.library is None:
            return Row(attack, 0, "not tried: there is no C compiler here", ("there is no C compiler",))
        calls, counts = count(one), {"old": 0, "new": 0}
        failures = []
        for number in range(1, calls + 1):
            found, wrong = struck(one, fault, number)
            counts[found] = counts.get(found, 0) + 1
            failures += [f"{writer}, {fault} at call {number}: {what}" for what in wrong]
    told = f"the old output {counts['old']} times, the new one {counts['new']} times, never a mixture; nothing stays"
    return Row(attack, calls, told, tuple(failures))


def count(one: Replaced) -> int:
    """How many calls there are in a run that nothing happens to."""
    one.begin()
    return one.runs.run(one.writer.new, one.folder, fault=(one.folder, 0, 0, False), every_step=False).calls


def struck(one: Replaced, fault: str, number: int) -> tuple[str, list[str]]:
    """Let a fault happen at one call; which output is there afterwards, and what is wrong."""
    one.begin()
    before = one.inputs()
    action, stays = FAULTS[fault]
    ended = one.runs.run(one.writer.new, one.folder, fault=(one.folder, number, action, stays), every_step=False)
    which, wrong = one.whole()
    if fault == "SIGKILL" and ended.code != -signal.SIGKILL:
        wrong.append(f"exit {ended.code}, expected to be killed")
    elif fault != "SIGKILL" and ended.code not in (0, 4):
        wrong.append(f"exit {ended.code}: {ended.err.strip()[-300:]}")
    elif ended.code == 0 and which == "old":
        wrong.append("it said that all was well, and nothing was written")
    if "Traceback" in ended.err:
        wrong.append(f"a traceback: {ended.err.strip()[-300:]}")
    again = one.runs.run(one.writer.new, one.folder, every_step=False)
    if again.code != 0 or one.whole() != ("new", []):
        wrong.append(f"the next run ends with exit {again.code} and {one.whole()}: {again.err.strip()[-300:]}")
    if one.left():
        wrong.append(f"left behind by the next run: {', '.join(one.left())}")
    if one.inputs() != before:
        wrong.append("an input has changed")
    return which, wrong
