"""Commands run against hostile files, each in a process of its own, and what is wrong with how they ended."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.safety import valid
from tests.safety.case import Case
from tests.safety.seeds import Seed

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 10.0
"""Processor time a command may take for a file it refuses."""

MEMORY = 500 << 20
"""Bytes above the idle process a command may take at its peak for a file it refuses."""

RAW = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters a terminal must never get from a file: control codes, and marks that turn the direction of text."""


@dataclass(frozen=True)
class Outcome:
    """How one command ended.

    Attributes:
        code: Its exit code; None where it was ended by a signal or did not end.
        signal: The signal that ended it, a crash.
        ended: False where it was still running after `server.PATIENCE` seconds.
        wall: Seconds by the clock.
        processor: Seconds of processor time.
        memory: Bytes above the idle process at its peak.
        out: Standard output.
        err: Standard error.
        traces: Programs started, addresses looked up, files written elsewhere, code of the folder that ran.
        argv: The command line behind `arachne`.
    """

    code: int | None
    signal: int | None
    ended: bool
    wall: float
    processor: float
    memory: int
    out: str
    err: str
    traces: tuple[str, ...]
    argv: tuple[str, ...]

    def wrong(self) -> list[str]:
        """Outcomes no input may ever cause: a crash, a hang, a traceback, a bug of ours, code run."""
        found = []
        if not self.ended:
            found.append(f"still running after {self.wall:.0f} s")
        if self.signal is not None:
            found.append(f"ended by signal {self.signal}")
        if self.code in (70, 99, 120):
            found.append(f"exit {self.code}")
        if "Traceback (most recent call last)" in self.out + self.err:
            found.append("a traceback")
        if RAW.search(self.out + self.err):
            found.append("raw control codes in what it says")
        return [*found, *self.traces]

    def wrong_for(self, exits: tuple[int, ...], *, timed: bool = False) -> list[str]:
        """List the faults where one sentence, one of these exit codes and little work are expected.

        A suite on a busy machine says nothing about time, so that the full run alone is `timed`.
        """
        found = self.wrong()
        if self.ended and self.signal is None and self.code not in exits:
            found.append(f"exit {self.code}, wanted {' or '.join(map(str, exits))}")
        # A table of what was tried may stand below the sentence, indented; what was told before may stand above.
        lines = [line for line in self.err.strip().splitlines() if not line.startswith("  ")]
        errors = [number for number, line in enumerate(lines, 1) if line.startswith("error: ")]
        if self.code in exits and self.code != 0 and errors != [len(lines)]:
            found.append(f"{len(errors)} sentences in {len(lines)} lines on standard error, wanted one at the end")
        if timed and self.processor > SECONDS:
            found.append(f"{self.processor:.1f} s of processor time")
        if self.memory > MEMORY:
            found.append(f"{self.memory >> 20} MB above idle")
        return found


class Servers:
    """The warmed-up processes, each started when it is first needed; use as a context manager."""

    def __init__(self) -> None:
        self._running: dict[str, tuple[subprocess.Popen[str], int]] = {}
        self._scratch = Path(tempfile.mkdtemp(prefix="arachne-safety-"))
        (self._scratch / "kept").mkdir()
        self._count = 0

    def __enter__(self) -> Servers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the processes and remove what they left."""
        for process, _ in self._running.values():
            process.kill()
            process.communicate()
        self._running.clear()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def new_folder(self) -> Path:
        """An empty folder for one run; the command runs in its subfolder `case`."""
        self._count += 1
        work = self._scratch / str(self._count)
        (work / "case").mkdir(parents=True)
        return work

    def case(self, case: Case) -> Outcome:
        """Make a case's files, run its command and clean up."""
        work = self.new_folder()
        try:
            return self._ask(case.server, {"case": case.name, "work": str(work)}, work)
        finally:
            _remove(work)

    def prepare(self, seed: Seed) -> Path:
        """A folder with a seed's files in `case` and the name of the one to change in `file`; the caller removes it."""
        kept = self._scratch / "kept" / f"seed-{seed.name}"
        if not kept.exists():
            work = self.new_folder()
            self._request(seed.server, {"seed": seed.name, "work": str(work)})
            work.rename(kept)
        work = self.new_folder()
        shutil.copytree(kept, work, dirs_exist_ok=True)
        return work

    def command(self, argv: list[str], work: Path, server: str = "core") -> Outcome:
        """Run a command in `work/case`; the caller removes `work`."""
        return self._ask(server, {"argv": argv, "work": str(work)}, work)

    def _ask(self, server: str, request: dict[str, Any], work: Path) -> Outcome:
        answer, idle = self._request(server, request)
        traces = _text(work / "trace").splitlines()
        traces += [f"code run: {path.name} stands" for path in work.rglob("*CANARY*")]
        return Outcome(
            **{name: answer[name] for name in ("code", "signal", "ended", "wall", "processor")},
            memory=max(0, answer["memory"] - idle),
            out=_text(work / "out"),
            err=_text(work / "err"),
            traces=tuple(traces),
            argv=tuple(answer["argv"]),
        )

    def _request(self, server: str, request: dict[str, Any]) -> tuple[dict[str, Any], int]:
        process, idle = self._running.get(server) or self._start(server)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process '{server}' died")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(f"{request} was not made:\n{answer['error']}")
        return answer, idle

    def _start(self, server: str) -> tuple[subprocess.Popen[str], int]:
        names = ("OMP_NUM", "OPENBLAS_NUM", "MKL_NUM", "TF_NUM_INTRAOP", "TF_NUM_INTEROP")
        threads = {f"{name}_THREADS": "1" for name in names}
        quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.safety.server", server],
            cwd=ROOT,
            env={**os.environ, **threads, **quiet, valid.CACHE: str(self._scratch / "kept")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        first = process.stdout.readline()
        if not first:
            raise RuntimeError(f"the process '{server}' did not start")
        self._running[server] = process, json.loads(first)["idle"]
        return self._running[server]


def _text(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "surrogateescape") if path.exists() else ""


def _remove(work: Path) -> None:
    shutil.rmtree(work, ignore_errors=True)
