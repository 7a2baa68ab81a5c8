"""Faults of a disk, on purpose: `faults.c`, compiled when it is first needed.

    environment = {**os.environ, "LD_PRELOAD": str(faults.library(folder))}     # for a process that is started
    faults.arm(under, number, errno.ENOSPC)                                     # inside that process

The n-th call that would change something under a folder then fails with that error, or ends the process.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from pathlib import Path

KILL = -1
"""Instead of an error: the process is ended before the call, as by `kill -9`."""

SYMLINK, LINK, RENAME = -2, -3, -4
"""Instead of an error: just before the call something is moved away, and a link to something else, a hard link to it or
that itself takes its name; see `swap`."""


def library(folder: Path) -> Path | None:
    """The compiled library, made in a folder; None where there is no compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    path = folder / "faults.so"
    if not path.exists():
        source = Path(__file__).with_name("faults.c")
        subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", path, source, "-ldl"], check=True)
    return path


def arm(under: Path, number: int, action: int, *, for_good: bool = False) -> None:
    """From now on, strike at the n-th call that changes something under a folder; 0 only counts.

    Args:
        under: The folder, resolved.
        number: Which call, from 1 on.
        action: An error's number, `KILL`, or how something is swapped.
        for_good: Whether all calls after it fail too, as on a disk that stays full.
    """
    loaded = ctypes.CDLL(os.environ["LD_PRELOAD"])
    loaded.faults_arm(os.fsencode(under), ctypes.c_long(number), action, int(for_good))


def swap(what: Path, aside: Path, other: Path) -> None:
    """Say what is moved away, where to, and what takes its name, when `arm` was called with such an action."""
    loaded = ctypes.CDLL(os.environ["LD_PRELOAD"])
    loaded.faults_swap(*(os.fsencode(path) for path in (what, aside, other)))


def count_calls() -> int:
    """How many such calls there were since `arm`."""
    return int(ctypes.CDLL(os.environ["LD_PRELOAD"]).faults_seen())
