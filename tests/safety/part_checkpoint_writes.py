"""Every call of the system that a checkpoint is written with fails once, or is the last one of its run."""

from __future__ import annotations

import errno
import signal
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from arachne.errors import InputError
from arachne.io.arrays import read_arrays
from arachne.results.checkpoint.files import read_saved
from arachne.results.checkpoint.passes import PASS
from tests.safety import faults
from tests.safety.kept import Kept, Trial
from tests.safety.resumed import SHORT, Repair, repair
from tests.safety.rows import Row
from tests.safety.runs import Runs

ORDER = 22
FAULTS = {
    "SIGKILL": (faults.KILL, False),
    "ENOSPC": (errno.ENOSPC, True),
    "EIO": (errno.EIO, False),
    "EACCES": (errno.EACCES, False),
}
"""Faults at a call, each with whether it happens at all that follow."""


def run(seed: int, jobs: int, kept: Kept) -> Iterator[Row]:
    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(lambda fault: _row(fault, kept), FAULTS)


def _row(fault: str, kept: Kept) -> Row:
    attack = f"{fault} at each call of a checkpoint write"
    with Runs() as runs, repair(runs, SHORT) as one:
        if runs.library is None:
            return Row(attack, 0, "not tried: there is no C compiler here", ("there is no C compiler",))
        calls = count(one)
        numbers = range(1, calls + 1)
        found = [kept.trial("checkpoint_writes", f"{fault} {n}", partial(_trial, one, fault, n)) for n in numbers]
    made = {number: trial for number, trial in zip(numbers, found, strict=True) if trial is not None}
    codes = Counter(trial.seen["code"] for trial in made.values())
    told = ", ".join(f"exit {code} {times} times" for code, times in sorted(codes.items()))
    told += "; whole checkpoints, all resumed byte-identical"
    told += f"; {calls - len(made)} of {calls} not yet tried" if len(made) < calls else ""
    failures = [f"{fault} at call {number}: {what}" for number, trial in made.items() for what in trial.wrong]
    return Row(attack, len(made), told, tuple(failures))


def _trial(one: Repair, fault: str, number: int) -> Trial:
    code, wrong = strike(one, fault, number)
    return Trial(tuple(wrong), {"code": code})


def count(one: Repair) -> int:
    """How many calls there are in a run that nothing happens to."""
    name = one.new()
    ended = one.runs.run([*one.argv, "-o", name], one.folder, fault=(one.checkpoints(name), 0, 0, False))
    one.remove(name)
    return ended.calls


def strike(one: Repair, fault: str, number: int) -> tuple[int, list[str]]:
    """Let a fault happen at one call, look at what is on the disk, and go on; the exit code, and what is wrong."""
    name = one.new()
    action, stays = FAULTS[fault]
    ended = one.runs.run([*one.argv, "-o", name], one.folder, fault=(one.checkpoints(name), number, action, stays))
    wrong = []
    if fault == "SIGKILL" and ended.code != -signal.SIGKILL:
        wrong.append(f"exit {ended.code}, expected to be killed")
    elif fault != "SIGKILL" and ended.code not in (0, 4):
        wrong.append(f"exit {ended.code}: {ended.err.strip()[-300:]}")
    for path in one.checkpoints(name).glob("[sp]*.npz"):
        try:
            read_saved(path) if path.name.startswith("search-") else read_arrays(path, PASS)
        except InputError as error:
            wrong.append(f"no whole checkpoint: {error}")
    if not (one.folder / name).exists() or one.checkpoints(name).exists():
        wrong += one.wrong(name, one.resume(name))
    else:
        wrong += one.wrong(name, None)
    one.remove(name)
    return ended.code, wrong
