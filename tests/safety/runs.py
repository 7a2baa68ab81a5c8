"""Repairs that are killed, interrupted or meet faults of the disk: a process forks a child for each.

`Runs` starts that process, `python -m tests.safety.runs`, once: it has loaded everything by the time of the first
child, so that a child is soon inside its search. Requests and answers are lines of JSON.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.safety import faults

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 600.0
"""Seconds after which a child is ended, whatever it does."""

LOADED = (
    *("arachne.engine", "arachne.cli.repair", "arachne.cli.console", "arachne.results.result", "arachne.report.html"),
    *("arachne.report.folder", "arachne.report.page", "arachne.search.de_pymoo", "scipy.stats", "PIL.Image"),
    *("arachne.model.registry", "arachne.causes", "gzip"),
    *("onnx", "onnxruntime", "arachne_onnx"),
)


@dataclass(frozen=True)
class Ended:
    """How a command ended.

    Attributes:
        code: Its exit code; minus the number of the signal that ended it.
        out: Standard output.
        err: Standard error.
        wall: Seconds until it had ended.
        after: Seconds from the first signal on; 0 where there was none.
        calls: How many calls changed something under the folder of the faults.
    """

    code: int
    out: str
    err: str
    wall: float
    after: float
    calls: int


class Runs:
    """Commands in forked children; use as a context manager."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="arachne-runs-")
        self.library = faults.library(Path(self._folder.name))
        threads = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}
        preload = {} if self.library is None else {"LD_PRELOAD": str(self.library)}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.safety.runs"],
            cwd=ROOT,
            env={**os.environ, **threads, **preload},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Runs:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.kill()
        self._process.communicate()
        self._folder.cleanup()

    def run(
        self,
        argv: Sequence[str],
        folder: Path,
        *,
        signals: Sequence[tuple[float, int]] = (),
        fault: tuple[Path, int, int, bool] | None = None,
        swap: tuple[Path, Path, Path] | None = None,
        since: str = "",
        every_step: bool = True,
    ) -> Ended:
        """Run a command in a folder.

        Args:
            argv: The command line behind `arachne`.
            folder: Where it runs.
            signals: After how many seconds it gets which signal.
            since: What it has said on standard error before these seconds begin to count.
            fault: What `faults.arm` is given.
            swap: What `faults.swap` is given.
            every_step: Whether a checkpoint is written after every step, whatever that costs.
        """
        told = None if fault is None else [str(fault[0]), *fault[1:]]
        request: dict[str, object] = {"argv": list(argv), "cwd": str(folder), "signals": list(signals), "fault": told}
        request |= {"since": since, "all": every_step, "swap": None if swap is None else [str(path) for path in swap]}
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("the process has no pipes")
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the process that runs commands died")
        return Ended(**json.loads(line))


def main() -> None:
    for module in LOADED:
        importlib.import_module(module)
    _warm_up()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        answers.write(json.dumps(_serve(json.loads(line))) + "\n")
        answers.flush()


def _warm_up() -> None:
    """Do once what every child would do again; nothing that starts threads, which would not survive a fork."""
    from PIL import Image

    from arachne.report.html import environment

    Image.preinit()
    for template in environment().list_templates(extensions=["j2"]):
        environment().get_template(template)


def _serve(request: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="arachne-run-") as folder:
        work = Path(folder)
        began, first = time.monotonic(), [0.0]
        pid = os.fork()
        if pid == 0:
            _child(request, work)
        ender = threading.Timer(PATIENCE, os.kill, [pid, signal.SIGKILL])
        sender = threading.Thread(target=_send, args=[pid, request, work / "err", first])
        ender.start()
        sender.start()
        _, status = os.waitpid(pid, 0)
        ended = time.monotonic()
        ender.cancel()
        sender.join()
        seen = work / "seen"
        return {
            "code": os.waitstatus_to_exitcode(status),
            "out": (work / "out").read_text() if (work / "out").exists() else "",
            "err": (work / "err").read_text() if (work / "err").exists() else "",
            "wall": ended - began,
            "after": max(0.0, ended - first[0]) if first[0] else 0.0,
            "calls": int(seen.read_text()) if seen.exists() else 0,
        }


def _send(pid: int, request: dict[str, Any], said: Path, first: list[float]) -> None:
    since = str(request["since"])
    until = time.monotonic() + PATIENCE
    while since and time.monotonic() < until and not (said.exists() and since in said.read_text()):
        if not request["signals"] or not Path(f"/proc/{pid}").exists():
            return
        time.sleep(0.002)
    began = time.monotonic()
    for after, number in request["signals"]:
        time.sleep(max(0.0, began + after - time.monotonic()))
        try:
            os.kill(pid, int(number))
        except ProcessLookupError:
            return
        first[0] = first[0] or time.monotonic()


def _child(request: dict[str, Any], work: Path) -> None:
    """Run the command and end the process; never returns."""
    from arachne.cli import run
    from arachne.results.checkpoint import keeper

    code = 99
    try:
        for name, descriptor in (("out", 1), ("err", 2)):
            os.dup2(os.open(work / name, os.O_WRONLY | os.O_CREAT), descriptor)
        os.chdir(request["cwd"])
        if request["all"]:
            keeper.SHARE = 1.0
        if request["fault"] is not None:
            under, number, action, for_good = request["fault"]
            if request["swap"] is not None:
                faults.swap(*map(Path, request["swap"]))
            faults.arm(Path(under), number, action, for_good=for_good)
        try:
            code = run(request["argv"])
        except KeyboardInterrupt:  # as `arachne.__main__` ends it: a second signal while the first one's end is told
            code = 128 + signal.SIGINT
        if request["fault"] is not None:
            calls = faults.count_calls()
            (work / "seen").write_text(str(calls))
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


if __name__ == "__main__":
    main()
