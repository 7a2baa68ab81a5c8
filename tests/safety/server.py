"""A process with its libraries loaded that forks a child for every command: `python -m tests.safety.server core`.

One request a line on standard input, one answer a line on standard output, both JSON. A request has `work`, a folder of
its own for this run, and either `case`, the name of a case to make and run, `seed`, the name of valid files to make, or
`argv`, the command line to run in `work/case`. Each is a child of its own, so that
no case meets what another left behind.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.safety import case, guard, seeds, valid

PATIENCE = 120.0
"""Seconds after which a child is ended; ten of processor time are allowed, which a busy machine takes long to give."""

LOADED = {
    "core": ["arachne_onnx", "onnx", "onnxruntime", "PIL.Image", "pyarrow.parquet", "tests.safety.valid"],
    "torch": ["arachne_torch", "torch", "safetensors"],
    "keras": ["arachne_keras", "keras"],
    "tflite": ["arachne_tflite.adapter", "ai_edge_litert.schema_py_generated"],
}
"""Modules each server loads before its first child, where installed."""


WARM = (
    "arachne",
    "arachne_onnx",
    "arachne_torch",
    "arachne_keras",
    "arachne_tflite",
    "numpy",
    "scipy",
    "PIL",
    "pyarrow",
    "rich",
    "jinja2",
)
"""Packages of which a server loads whatever a child of it had to load."""


def main(name: str) -> None:
    from arachne.cli import COMMANDS

    for module in ["arachne", *(f"arachne.cli.{command}" for command in COMMANDS), *LOADED[name]]:
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    case.all_cases()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    _answer(answers, {"idle": _fork(lambda: 0)["memory"]})
    for line in sys.stdin:
        request = json.loads(line)
        answer = _serve(request)
        listed = [Path(request["work"]) / name for name in ("modules", "makers")]
        names = [name for path in listed if path.exists() for name in path.read_text().split()]
        _answer(answers, answer)
        _warm_up(names)


def _warm_up(names: list[str]) -> None:
    """Import what a child had to import, so that the next need not; nothing is run here that a file could steer."""
    for name in sorted(set(names) - set(sys.modules)):
        if name.partition(".")[0] in WARM:
            with contextlib.suppress(Exception):
                importlib.import_module(name)


def _answer(answers: Any, content: dict[str, Any]) -> None:
    answers.write(json.dumps(content) + "\n")
    answers.flush()


def _serve(request: dict[str, Any]) -> dict[str, Any]:
    work = Path(request["work"])
    folder = work / "case"
    folder.mkdir(exist_ok=True)
    if "argv" not in request:
        made = _fork(lambda: _make(request, folder, work), patience=300.0)
        told = (work / "made").read_text() if (work / "made").exists() else "the maker died"
        if made["code"] != 0:
            return {**made, "error": told}
        if "seed" in request:
            (work / "made").rename(work / "file")
            return made
        request["argv"] = json.loads(told)
    return {**_fork(lambda: _run(request["argv"], folder, work)), "argv": request["argv"]}


def _fork(child: Callable[[], int], patience: float = PATIENCE) -> dict[str, Any]:
    """Run a function in a child and tell how it ended, in how many seconds and with how many bytes at its peak."""
    began = time.monotonic()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        code = 99
        try:
            code = child()
        except BaseException:  # whatever it is, it must not run on as a second server
            traceback.print_exc()
        finally:
            os._exit(code)
    handle = os.pidfd_open(pid)
    ended = bool(select.select([handle], [], [], patience)[0])
    os.close(handle)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    _, status, used = os.wait4(pid, 0)
    return {
        "code": os.WEXITSTATUS(status) if ended and os.WIFEXITED(status) else None,
        "signal": os.WTERMSIG(status) if ended and os.WIFSIGNALED(status) else None,
        "ended": ended,
        "wall": time.monotonic() - began,
        "processor": used.ru_utime + used.ru_stime,
        "memory": used.ru_maxrss * 1024,
    }


def _make(request: dict[str, Any], folder: Path, work: Path) -> int:
    """Write a case's or a seed's files; `made` holds the command line, or the name of the file to change."""
    os.chdir(folder)
    _give_key(work)
    for descriptor in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
    made = work / "made"
    try:
        if "seed" in request:
            told = next(seed for seed in seeds.SEEDS if seed.name == request["seed"]).make(folder)
        else:
            told = json.dumps(case.all_cases()[request["case"]].make(folder))
    except BaseException:
        made.write_text(traceback.format_exc())
        return 1
    (work / "makers").write_text(" ".join(sorted(sys.modules)))
    made.write_text(told)
    return 0


def _give_key(work: Path) -> None:
    """Let a child's user have a key that those who change checkpoints know, so that they get past its mark."""
    from arachne.io.own_key import STATE, key_path

    os.environ[STATE] = str(work / "state")
    key_path().parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    key_path().write_bytes(valid.KEY)
    key_path().chmod(0o600)


def _run(argv: list[str], folder: Path, work: Path) -> int:
    from arachne.cli import run as command

    for name, descriptor in (("out", 1), ("err", 2)):
        os.dup2(os.open(work / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    _give_key(work)
    guard.enclose(work, folder, work / "trace")
    guard.watch(work, folder, work / "trace")
    try:
        code = command(argv)
    except BaseException:  # what the interpreter would do with it
        traceback.print_exc()
        code = 1
    with contextlib.suppress(OSError):
        (work / "modules").write_text(" ".join(sorted(sys.modules)))
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        code = 120
    return code


if __name__ == "__main__":
    main(sys.argv[1])
