"""Every call of the system that a checkpoint is written with fails once, or is the last one of its run."""

from __future__ import annotations

import errno
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from arachne.errors import InputError
from arachne.results.checkpoint.files import read_saved
from tests.safety import faults
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
"""What happens at a call, and whether it happens at all that follow."""


def run(seed: int, jobs: int) -> Iterator[Row]:
    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(_row, FAULTS)


def _row(fault: str) -> Row:
    attack = f"{fault} at each call of a checkpoint write"
    with Runs() as runs, repair(runs, SHORT) as one:
        if runs.library is None:
            return Row(attack, 0, "not tried: there is no C compiler here", ("there is no C compiler",))
        calls = count(one)
        codes: dict[int, int] = {}
        failures = []
        for number in range(1, calls + 1):
            code, wrong = struck(one, fault, number)
            codes[code] = codes.get(code, 0) + 1
            failures += [f"{fault} at call {number}: {what}" for what in wrong]
    told = ", ".join(f"exit {code} {times} times" for code, times in sorted(codes.items()))
    return Row(attack, calls, f"{told}; whole checkpoints, all resumed byte-identical", tuple(failures))


def count(one: Repair) -> int:
    """How many calls there are in a run that nothing happens to."""
    name = one.new()
    ended = one.runs.run([*one.argv, "-o", name], one.folder, fault=(one.checkpoints(name), 0, 0, False))
    one.remove(name)
    return ended.calls


def struck(one: Repair, fault: str, number: int) -> tuple[int, list[str]]:
    """Let a fault happen at one call, look at what is on the disk, and go on; the exit code, and what is wrong."""
    name = one.new()
    action, stays = FAULTS[fault]
    ended = one.runs.run([*one.argv, "-o", name], one.folder, fault=(one.checkpoints(name), number, action, stays))
    wrong = []
    if fault == "SIGKILL" and ended.code != -signal.SIGKILL:
        wrong.append(f"exit {ended.code}, expected to be killed")
    elif fault != "SIGKILL" and ended.code not in (0, 4):
        wrong.append(f"exit {ended.code}: {ended.err.strip()[-300:]}")
    for path in one.checkpoints(name).glob("search-*.npz"):
        try:
            read_saved(path)
        except InputError as error:
            wrong.append(f"no whole checkpoint: {error}")
    if not (one.folder / name).exists() or one.checkpoints(name).exists():
        wrong += one.wrong(name, one.resume(name))
    else:
        wrong += one.wrong(name, None)
    one.remove(name)
    return ended.code, wrong
