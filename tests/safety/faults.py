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
        action: An error's number, or `KILL`.
        for_good: Whether all calls after it fail too, as on a disk that stays full.
    """
    loaded = ctypes.CDLL(os.environ["LD_PRELOAD"])
    loaded.faults_arm(os.fsencode(under), ctypes.c_long(number), action, int(for_good))


def seen() -> int:
    """How many such calls there were since `arm`."""
    return int(ctypes.CDLL(os.environ["LD_PRELOAD"]).faults_seen())
