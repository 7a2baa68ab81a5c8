"""A whole repair of data that takes many times the memory it may hold, in a process of its own, stays within bounds."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from arachne.data.labelled import LabelledData
from arachne.data.readers import read_data
from arachne.engine import repair
from arachne.search.budget import Budget
from arachne.settings import Settings
from arachne.testing import ReferenceBackend, mlp

INPUTS, WIDTH, FEW = 6000, 12_288, 300
"""300 MB in memory, and how many of them are repaired first, to have everything imported."""

MEMORY = 16 << 20
BESIDES = (64 << 20) + 300 * INPUTS
"""What a repair holds whatever it may: inputs that labels are compared by, and some numbers about each input."""

SLACK = 48 << 20
"""What batches under way, and what they leave unused behind them, take for a while."""


def model() -> ReferenceBackend:
    return ReferenceBackend(mlp([WIDTH, 16, 10], seed=0))


def make(folder: Path) -> None:
    """Bytes in an npy file; a third of what the model takes for its second most frequent class is another one."""
    rng, backend = np.random.default_rng(0), model()
    few = rng.integers(0, 256, (200, WIDTH), dtype=np.uint8)
    x = np.lib.format.open_memmap(folder / "x.npy", "w+", np.uint8, (INPUTS, WIDTH))
    labels = np.empty(INPUTS, np.int64)
    for start in range(0, INPUTS, 500):
        own = few[rng.integers(0, len(few), 500)] ^ rng.integers(0, 64, (500, WIDTH), dtype=np.uint8)
        x[start : start + 500], labels[start : start + 500] = own, backend.predict(own.astype(np.float32) / 255)
    x.flush()
    first, second = np.argsort(-np.bincount(labels))[:2]
    wrong = np.flatnonzero(labels == second)[::3]
    labels[wrong] = first
    np.save(folder / "y.npy", labels)
    (folder / "target").write_text(f"{first}:{second}", "utf-8")


def peak() -> int:
    """The most bytes this process ever had in memory."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def main(folder: Path) -> None:
    """Repair few inputs, then all, and print by how much the second took more than the first."""
    settings, target = Settings(memory=MEMORY, budget=Budget(max_break=0.9)), (folder / "target").read_text("utf-8")
    data = read_data(folder, preprocess="scale=1/255", memory=MEMORY)
    few = data.take(np.arange(FEW))
    repair(model(), LabelledData(np.asarray(few.inputs), few.labels), target, settings=settings)
    before = peak()
    result = repair(model(), data, target, settings=settings)
    print(json.dumps({"bytes": 4 * WIDTH * len(data), "grown": peak() - before, "weights": len(result.patch)}))


@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not tell the peak of a process in this way")
def test_a_whole_repair_holds_what_it_may_and_not_the_data(tmp_path: Path) -> None:
    make(tmp_path)
    ran = subprocess.run(
        [sys.executable, "-m", "tests.unit.test_memory_of_a_repair", str(tmp_path)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout.splitlines()[-1])
    assert told["weights"] > 0
    assert told["bytes"] > 15 * MEMORY
    assert told["grown"] < MEMORY + BESIDES + SLACK < told["bytes"] / 2


if __name__ == "__main__":
    main(Path(sys.argv[1]))
