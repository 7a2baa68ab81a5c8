"""Every hostile file: one sentence and exit 3, no code run, little time, little memory."""

from __future__ import annotations

import os
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from tests.safety.case import Case, all_cases
from tests.safety.kept import Kept, Trial
from tests.safety.rows import Row
from tests.safety.running import Outcome, Servers

ORDER = 1


def run(seed: int, jobs: int, kept: Kept) -> Iterator[Row]:
    wanted = os.environ.get("ARACHNE_SAFETY_ONLY", "")
    cases = [case for case in all_cases().values() if wanted in f"{case.name} {case.kind} {case.attack}"]
    cases.sort(key=lambda case: case.server)
    own = threading.local()
    opened: list[Servers] = []

    def attempt(case: Case) -> Trial:
        if not hasattr(own, "servers"):
            own.servers = Servers()
            opened.append(own.servers)
        return _judge(case, own.servers.case(case))

    try:
        with ThreadPoolExecutor(jobs) as pool:
            trials = list(pool.map(lambda case: kept.trial("hostile", case.name, lambda: attempt(case)), cases))
    finally:
        for servers in opened:
            servers.close()
    groups: dict[str, list[tuple[Case, Trial | None]]] = defaultdict(list)
    for case, trial in zip(cases, trials, strict=True):
        groups[case.kind].append((case, trial))
    for kind, group in sorted(groups.items()):
        yield _row(f"hostile files: {kind}", group)
    if not wanted:
        yield _row("hostile files, all kinds", list(zip(cases, trials, strict=True)), again=True)


def _judge(case: Case, outcome: Outcome) -> Trial:
    """How a case ended, with what is wrong and the last line that was said."""
    wrong = outcome.wrong_for(case.exits, timed=True)
    said = (outcome.err.strip().splitlines()[-1:] or ["nothing on standard error"])[0][:300]
    seen = {"code": outcome.code, "processor": round(outcome.processor, 2), "memory": outcome.memory >> 20}
    return Trial((f"{'; '.join(wrong)} ({said!r})",) if wrong else (), seen)


def _row(attack: str, tried: list[tuple[Case, Trial | None]], *, again: bool = False) -> Row:
    """A line of the table; its failures are left out where they have been told by another line."""
    made = [(case, trial) for case, trial in tried if trial is not None]
    codes = Counter(trial.seen["code"] for _, trial in made)
    told = (
        ", ".join(f"exit {code} {number:,} times" for code, number in codes.most_common())
        + f"; slowest {max((trial.seen['processor'] for _, trial in made), default=0):.1f} s, most memory "
        f"{max((trial.seen['memory'] for _, trial in made), default=0)} MB above idle"
        + (f"; {len(tried) - len(made):,} not yet tried" if len(made) < len(tried) else "")
    )
    failures = tuple(f"{case.kind} {case.name}: {wrong}" for case, trial in made for wrong in trial.wrong)
    return Row(attack, len(made), told, () if again else failures)
