"""Found settings, every option that exists: taken and told, or refused; strace and a socket that listens watch."""

from __future__ import annotations

import os
import socket
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.safety.found import Found, cases
from tests.safety.kept import Kept
from tests.safety.rows import Row
from tests.safety.watched import Watched, watch, why_not

ORDER = 3


def run(seed: int, jobs: int, kept: Kept) -> Iterator[Row]:
    attack = "found settings: every option of every command, by file and by environment"
    if (reason := why_not()) is not None:
        yield Row(attack, 0, f"not tried: {reason}", (reason,))
        return
    with socket.create_server(("127.0.0.1", 0)) as server:
        only = os.environ.get("ARACHNE_SAFETY_ONLY", "")
        tried = [case for case in cases("{}:{}".format(*server.getsockname())) if only in case.name]
        found = run_watched(tried, server)
    failures = [f"{case.name}: {wrong}" for case, one in zip(tried, found, strict=True) for wrong in judge(case, one)]
    counts = Counter(
        {True: "taken and told", False: "refused", None: "not read by the command"}[case.taken] for case in tried
    )
    told = ", ".join(f"{number} {what}" for what, number in counts.most_common())
    yield Row(
        attack, len(tried), f"{told}; no connection, no program started, nothing written elsewhere", tuple(failures)
    )


def run_watched(tried: Sequence[Found], server: socket.socket) -> list[Watched]:
    """Run cases in a folder of their own, and see that nobody calls.

    Raises:
        RuntimeError: Somebody has connected.
    """
    with tempfile.TemporaryDirectory(prefix="arachne-watched-") as name:
        found = watch(tried, Path(name).resolve())
    server.setblocking(False)
    try:
        server.accept()[0].close()
    except BlockingIOError:
        return found
    raise RuntimeError("somebody has connected to the socket that listens")


def judge(case: Found, seen: Watched) -> list[str]:
    """List the faults of a case."""
    wrong = [] if seen.code in case.exits() else [f"exit {seen.code}: {seen.err.strip()[-200:]}"]
    if case.taken is False and (seen.err.count("\n") != 1 or " sets " not in seen.err):
        wrong.append(f"it was told: {seen.err.strip()[-200:]!r}")
    if case.taken and "found settings: " not in seen.err:
        wrong.append("it was taken without a word")
    return wrong + [f"a call of the system: {line[:200]}" for line in seen.calls[:3]]
