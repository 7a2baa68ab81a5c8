"""A repair that something ends, and what must be there after it was resumed."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tests.safety import valid
from tests.safety.runs import Ended, Runs

SAME = ("patch.json", "history.csv", "model.onnx")
"""Files that hold no times, and are the same to the byte."""

SEARCHES = {
    "de": ("--search", "de", "-O", "population=40", "-O", "generations=30", "-O", "patience=30"),
    "margin": ("--search", "margin"),
    "auto": ("--search", "auto"),
}
"""The searches that are ended, by name; each takes a second or two."""

SHORT = ("--search", "de", "--localiser", "bl", "-O", "population=8", "-O", "generations=2")
POOL = ("--search", "auto", "-O", "members=bias,ridge")
"""Options for a few runs, and for a sample."""


@dataclass
class Repair:
    """One command, run to its end once and then as often as one likes.

    Attributes:
        runs: Where commands run.
        folder: Holds model and data.
        argv: The command line, without the folder its results go to.
    """

    runs: Runs
    folder: Path
    argv: list[str]
    whole: dict[str, bytes] = field(default_factory=dict)
    seconds: float = 0.0
    generations: int = 0
    _count: int = 0

    def first(self) -> None:
        """Run to the end, undisturbed."""
        self.model_before = self.model_state()
        ended = self.runs.run([*self.argv, "-o", "whole"], self.folder)
        if ended.code != 0:
            raise RuntimeError(f"the repair failed with exit {ended.code}: {ended.err}")
        self.whole, self.seconds = self.results("whole"), ended.wall
        self.generations = len(self.whole["history.csv"].splitlines()) - 1

    def moment(self, rng: np.random.Generator) -> tuple[str, float]:
        """A time at which something may happen: one in five anywhere, else soon after some generation is told."""
        if rng.random() < 0.2:
            return "", float(rng.uniform(0.05, 1.0)) * self.seconds
        return f"generation {rng.integers(self.generations)}:", float(rng.uniform(0.0, 0.05))

    def new(self) -> str:
        """The name of a folder that is not there yet."""
        self._count += 1
        return f"fix{self._count}"

    def results(self, name: str) -> dict[str, bytes]:
        """Read the files that must be the same."""
        return {file: (self.folder / name / file).read_bytes() for file in SAME}

    def checkpoints(self, name: str) -> Path:
        """Where a run keeps its checkpoints."""
        return self.folder / f".{name}.arachne" / "checkpoints"

    def resume(self, name: str) -> Ended:
        """Go on with a run to its end."""
        return self.runs.run([*self.argv, "-o", name, "--resume"], self.folder)

    def wrong(self, name: str, ended: Ended | None) -> list[str]:
        """List the faults of a run that has ended well, as it should have, or was killed behind its work."""
        if ended is not None and ended.code not in (0, -signal.SIGKILL):
            return [f"exit {ended.code}: {ended.err.strip()[-300:]}"]
        if not (self.folder / name).exists():
            return ["there is no result"]
        found = [f"{file} differs" for file, bytes_ in self.results(name).items() if bytes_ != self.whole[file]]
        ended_itself = ended is not None and ended.code == 0
        left = sorted(path.name for path in self.folder.iterdir() if path.name.startswith(".") and ended_itself)
        found += [f"left behind: {', '.join(left)}"] if left else []
        return found + (["the model has changed"] if self.model_state() != self.model_before else [])

    def model_state(self) -> tuple[int, int, str]:
        """Inode, time of change and hash of the user's model."""
        path = self.folder / "net.onnx"
        return path.stat().st_ino, path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest()

    def remove(self, name: str) -> None:
        """Remove what a run has left, to keep the disk free."""
        shutil.rmtree(self.folder / name, ignore_errors=True)
        shutil.rmtree(self.folder / f".{name}.arachne", ignore_errors=True)


@contextmanager
def repair(runs: Runs, search: Sequence[str]) -> Iterator[Repair]:
    """A repair of the demo's network in a folder of its own, run to the end once."""
    with tempfile.TemporaryDirectory(prefix="arachne-resumed-") as name:
        folder = Path(os.path.realpath(name))
        model, data = valid.model(folder), valid.data(folder, rows=1797)
        argv = ["repair", model, "--data", data, "--target", "top:1", *search, "--verbose"]
        made = Repair(runs, folder, argv if "de" in search else [*argv, "--max-break", "5%"])
        made.first()
        yield made
