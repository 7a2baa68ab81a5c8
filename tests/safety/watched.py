"""Commands whose calls of the system are listed by strace: what they connect to, start and write.

`python -m tests.safety.watched FOLDER` runs under strace, reads cases from standard input, a line of JSON each, and
forks a child for each. It marks where the calls of a case begin by looking for a file that is not there.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import traceback
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.safety.found import Found, enter, prepare

ROOT = Path(__file__).resolve().parents[2]
MARK = "/watched-case-"
PLACES = (
    *("open", "openat", "creat", "mkdir", "mkdirat", "rename", "renameat", "renameat2", "unlink", "unlinkat"),
    *("rmdir", "link", "linkat", "symlink", "symlinkat", "truncate", "mknod", "mknodat", "chmod", "fchmodat"),
)
CALLS = (*PLACES, "connect", "bind", "listen", "execve")
NETWORK = re.compile(r"\bconnect\(.*AF_INET|\blisten\(")
"""A `bind` to no port, by which a library looks whether there is IPv6, is heard by nobody."""

STARTED = re.compile(r'\bexecve\((?!"[^"]*/uname", \["uname", "-p"\])')
"""Python's own `platform.processor`, which TensorFlow asks, starts `uname -p`."""

WRITES = re.compile(r"O_WRONLY|O_RDWR|O_CREAT|O_TRUNC")
QUOTED = re.compile(r'(?:<([^<>"]*)>, )?"((?:[^"\\]|\\.)*)"')
"""A path, behind the open folder that it is taken from where the call has one."""

HARMLESS_PLACES = ("/dev/", "/proc/")


@dataclass(frozen=True)
class Watched:
    """The outcome of one case.

    Attributes:
        code: Its exit code.
        err: Standard error.
        calls: Its calls of the system that connect, start something, or write outside of its own home.
    """

    code: int
    err: str
    calls: tuple[str, ...]


def why_not() -> str | None:
    """Say why nothing can be watched here; None where it can."""
    strace = shutil.which("strace")
    if strace is None:
        return "strace is not installed"
    tried = subprocess.run([strace, "-f", "-o", os.devnull, "true"], capture_output=True, check=False)
    return None if tried.returncode == 0 else "strace may not trace processes here"


def watch(cases: Sequence[Found], folder: Path) -> list[Watched]:
    """Run cases one after the other under strace, and read what it has seen."""
    prepare(folder)
    trace = folder / "trace"
    command = ["strace", "-f", "-y", "-qq", "-s", "300", "-e", "signal=none", "-e", f"trace=?{',?'.join(CALLS)}"]
    threads = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}
    ended = subprocess.run(
        [*command, "-o", str(trace), sys.executable, "-m", "tests.safety.watched", str(folder)],
        input="".join(json.dumps(dataclasses.asdict(case)) + "\n" for case in cases),
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, **threads},
        check=False,
    )
    answers = [json.loads(line) for line in ended.stdout.splitlines()]
    if len(answers) != len(cases):
        raise RuntimeError(f"the watched process ended early: {ended.stderr[-2000:]}")
    calls = _calls(trace.read_text(errors="replace"), folder)
    return [Watched(one["code"], one["err"], tuple(calls[number])) for number, one in enumerate(answers)]


def _calls(trace: str, folder: Path) -> dict[int, list[str]]:
    """Calls that no setting may cause, by the number of the case."""
    found: dict[int, list[str]] = defaultdict(list)
    current = -1
    for line in trace.splitlines():
        if MARK in line:
            current = int(line.split(MARK)[1].split('"')[0])
        elif current >= 0 and _is_wrong(line, folder):
            found[current].append(line)
    return found


def _is_wrong(line: str, folder: Path) -> bool:
    if NETWORK.search(line) or STARTED.search(line):
        return True
    call = line.split("(")[0].split()[-1]
    if call not in PLACES or "= -1 " in line or (call.startswith("open") and not WRITES.search(line)):
        return False
    paths = [os.path.join(folder / "here", base, path) for base, path in QUOTED.findall(line)]
    own = (str(folder / "home"), str(folder / "tmp"), *HARMLESS_PLACES)
    return any(not os.path.normpath(path).startswith(own) for path in paths)


def main(folder: Path) -> None:
    from arachne.cli import COMMANDS

    for module in ("arachne_onnx", "onnxruntime", *(f"arachne.cli.{name}" for name in COMMANDS)):
        importlib.import_module(module)
    for number, line in enumerate(sys.stdin):
        case = Found(**json.loads(line))
        errors = folder / "tmp" / "errors"
        errors.unlink(missing_ok=True)
        (folder / "here" / "arachne.toml").unlink(missing_ok=True)
        pid = os.fork()
        if pid == 0:
            _child(case, folder, errors, number)
        _, status = os.waitpid(pid, 0)
        answer = {"code": os.waitstatus_to_exitcode(status), "err": errors.read_text(errors="replace")}
        print(json.dumps(answer), flush=True)


def _child(case: Found, folder: Path, errors: Path, number: int) -> None:
    """Run a case and end the process; never returns."""
    from arachne.cli import run

    code = 99
    try:
        enter(case, folder)
        os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT), 2)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        _mark(number)
        code = run(case.argv)
        sys.stderr.flush()
    except BaseException:  # whatever it is, it is the case's
        traceback.print_exc()
    finally:
        _mark(-1)
        os._exit(code)


def _mark(number: int) -> None:
    """Look for a file that is not there, whose name says which case the calls behind it are of."""
    try:
        os.open(f"{MARK}{number}", os.O_RDONLY)
    except FileNotFoundError:
        return


if __name__ == "__main__":
    main(Path(sys.argv[1]))
