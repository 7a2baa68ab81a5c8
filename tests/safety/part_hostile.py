"""Every hostile file: one sentence and exit 3, no code run, little time, little memory."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from tests.safety.case import Case, all_cases
from tests.safety.rows import Row
from tests.safety.running import Outcome, Servers

ORDER = 1


def run(seed: int, jobs: int) -> Iterator[Row]:
    wanted = os.environ.get("ARACHNE_SAFETY_ONLY", "")
    cases = [case for case in all_cases().values() if wanted in f"{case.name} {case.kind} {case.attack}"]
    cases.sort(key=lambda case: case.server)
    own = threading.local()
    opened: list[Servers] = []

    def one(case: Case) -> Outcome:
        if not hasattr(own, "servers"):
            own.servers = Servers()
            opened.append(own.servers)
        outcome: Outcome = own.servers.case(case)
        return outcome

    try:
        with ThreadPoolExecutor(jobs) as pool:
            outcomes = list(pool.map(one, cases))
    finally:
        for servers in opened:
            servers.close()
    yield _row(cases, outcomes)


def _row(cases: list[Case], outcomes: list[Outcome]) -> Row:
    failures = []
    for case, outcome in zip(cases, outcomes, strict=True):
        wrong = outcome.wrong_for(case.exits)
        if wrong:
            said = outcome.err.strip().splitlines()[-1:] or ["nothing on standard error"]
            failures.append(f"{case.kind} {case.name}: {'; '.join(wrong)} ({said[0][:300]!r})")
    kinds = Counter(case.kind for case in cases)
    told = (
        f"slowest {max((outcome.processor for outcome in outcomes), default=0):.1f} s, most memory "
        f"{max((outcome.memory for outcome in outcomes), default=0) >> 20} MB above idle; "
        + ", ".join(f"{kind} {number}" for kind, number in sorted(kinds.items()))
    )
    return Row("hostile model, data, patch and config files", len(cases), told, tuple(failures))
