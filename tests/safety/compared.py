"""A comparison of searchers that something ends, and what must be there after it was resumed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.safety import valid
from tests.safety.runs import Runs

ARGV = ("compare", "net.onnx", "--data", "data.npz", "--target", "*:7", "--search", "bias", "--search", "de",
        "--search", "ridge", "-O", "generations=6", "-O", "population=20", "--verbose")  # fmt: skip
TIMES = ("seconds", "processor_seconds", "command")
"""Fields that differ between two comparisons that are the same."""


def without_times(value: Any) -> Any:
    """The content of `compare.json` without what depends on the clock."""
    if isinstance(value, dict):
        return {name: without_times(own) for name, own in value.items() if name not in TIMES}
    return [without_times(own) for own in value] if isinstance(value, list) else value


@dataclass
class Compared:
    """A comparison that was run to its end once."""

    runs: Runs
    folder: Path
    whole: Any
    seconds: float

    def kill_and_resume(self, rng: np.random.Generator) -> tuple[bool, list[str]]:
        """Kill a comparison at some time and go on; whether something was kept, and what is wrong."""
        for name in ("all", ".all.arachne"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
        after = float(rng.uniform(0.1, 1.0)) * self.seconds
        ended = self.runs.run([*ARGV, "-o", "all"], self.folder, signals=[(after, signal.SIGKILL)])
        kept = bool(list((self.folder / ".all.arachne").rglob("search-*.npz")))
        if ended.code != 0 and not (self.folder / "all").exists():
            ended = self.runs.run([*ARGV, "-o", "all", "--resume"], self.folder)
        wrong = [] if ended.code in (0, -signal.SIGKILL) else [f"exit {ended.code}: {ended.err.strip()[-300:]}"]
        if not (self.folder / "all").exists():
            return kept, [*wrong, "there is no result"]
        if read(self.folder / "all") != self.whole:
            wrong.append("compare.json differs")
        left = [path.name for path in self.folder.glob(".*") if ended.code == 0]
        return kept, wrong + ([f"left behind: {', '.join(left)}"] if left else [])


def read(folder: Path) -> Any:
    """Read the files that a comparison has written, without times."""
    return without_times(json.loads((folder / "compare.json").read_text()))


@contextmanager
def run_comparison(runs: Runs) -> Iterator[Compared]:
    """A comparison of three searchers in a folder of its own, run to the end once."""
    with tempfile.TemporaryDirectory(prefix="arachne-compared-") as name:
        folder = Path(os.path.realpath(name))
        valid.model(folder)
        valid.data(folder, rows=1797)
        ended = runs.run([*ARGV, "-o", "whole"], folder)
        if ended.code != 0:
            raise RuntimeError(f"the comparison failed with exit {ended.code}: {ended.err}")
        yield Compared(runs, folder, read(folder / "whole"), ended.wall)
