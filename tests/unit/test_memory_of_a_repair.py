"""A whole repair of data that takes many times the memory it may hold, in a process of its own, stays within bounds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from arachne.choose.budget import Budget
from arachne.data.labelled import LabelledData
from arachne.data.read import read_data
from arachne.engine import repair
from arachne.model.memory import peak_memory
from arachne.results.divide import MIN_SEARCH_MEMORY
from arachne.settings import Settings, make_localiser, make_searcher
from arachne.testing import ReferenceBackend, mlp

INPUTS, WIDTH, FEWEST_INPUTS = 6000, 12_288, 300
"""300 MB in memory, and how many of them are repaired first, to have everything imported."""

MEMORY = 16 << 20
BESIDES = (64 << 20) + 300 * INPUTS
"""Memory of any repair: inputs that labels are compared by, and some numbers about each input."""

SLACK = 24 << 20
"""Memory for a while: batches under way, and the gaps they leave behind them."""


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
    """The most bytes this process ever had in memory; what `getrusage` counts begins with the peak of its parent."""
    most = peak_memory()
    assert most is not None
    return most


def main(folder: Path) -> None:
    """Repair few inputs, then all, and print by how much the second took more than the first."""
    settings, target = Settings(memory=MEMORY, budget=Budget(max_break=0.9)), (folder / "target").read_text("utf-8")
    data = read_data(folder, preprocess="scale=1/255", memory=MEMORY)
    few = data.take(np.arange(FEWEST_INPUTS))
    repair(model(), LabelledData(np.asarray(few.inputs), few.labels), target, settings=settings)
    before = peak()
    told: list[str] = []
    result = repair(model(), data, target, settings=settings, on_note=told.append)
    seen = {"bytes": 4 * WIDTH * len(data), "grown": peak() - before, "weights": len(result.patch), "told": told}
    print(json.dumps(seen))


SMALL_MEMORY = 1 << 20
"""A limit below what a search needs."""


def search_within(folder: Path, memory: int) -> None:
    """Repair 2.5 MB of data by differential evolution, and print what was told, found, and held at most."""
    rng, backend = np.random.default_rng(0), ReferenceBackend(mlp([64, 32, 10], seed=0))
    inputs = rng.standard_normal((10_000, 64)).astype(np.float32)
    labels = backend.predict(inputs).astype(np.int64)
    first, second = np.argsort(-np.bincount(labels))[:2]
    labels[np.flatnonzero(labels == second)[::3]] = first
    np.savez(folder / "data.npz", x=inputs, y=labels)
    told: list[str] = []
    settings = Settings(
        localiser=make_localiser("rs", count=6),
        searcher=make_searcher("de", population=10, generations=4, patience=4),
        memory=memory,
    )
    data = read_data(folder / "data.npz", memory=memory)
    result = repair(backend, data, f"{first}:{second}", settings=settings, on_note=told.append)
    print(json.dumps({"peak": peak(), "told": told, "history": [repr(one) for one in result.search.history]}))


@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not tell the peak of a process in this way")
def test_a_search_with_a_limit_below_what_it_needs_says_so_and_takes_no_more_than_without_one(tmp_path: Path) -> None:
    found = []
    for memory in (SMALL_MEMORY, 2 << 30):
        ran = subprocess.run(
            [sys.executable, "-m", "tests.unit.test_memory_of_a_repair", str(tmp_path), str(memory)],
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert ran.returncode == 0, ran.stderr
        found.append(json.loads(ran.stdout.splitlines()[-1]))
    small, plenty = found
    assert "memory: a search keeps up to 32 MiB between candidates, more than the 1 MiB allowed" in small["told"]
    assert not any("memory" in note for note in plenty["told"])
    assert len(small["history"]) > 1
    assert small["history"] == plenty["history"]
    assert small["peak"] < plenty["peak"] + MIN_SEARCH_MEMORY


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
    shard = "memory: gradients are summed over 1,024 inputs at a time, which take 48 MiB, more than the 16 MiB allowed"
    assert shard in told["told"]


if __name__ == "__main__":
    if len(sys.argv) > 2:
        search_within(Path(sys.argv[1]), int(sys.argv[2]))
    else:
        main(Path(sys.argv[1]))


def test_the_peak_counts_what_was_held_and_let_go() -> None:
    program = (
        "import numpy as np\nfrom arachne.model.memory import peak_memory\nbefore = peak_memory()\n"
        "held = np.ones(100 << 20, np.uint8)\ndel held\nprint(peak_memory() - before)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert 90 << 20 < int(ran.stdout) < 200 << 20
