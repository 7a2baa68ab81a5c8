"""Peak memory and processor time of `--search de` with a `--memory` far below what it needs, against the default.

    python -m benchmarks.memory_limit                       # this tree
    python -m benchmarks.memory_limit --tree ../older       # another checkout, in the same environment

The data are 10,000 noisy copies of the demo's digits, 2.6 MB, and the demo's network.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
from importlib import resources
from pathlib import Path

import numpy as np

N_INPUTS = 10_000
LIMITS = ("", "1MB", "100MB")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory_limit", description=__doc__)
    parser.add_argument("--tree", type=Path, default=Path(__file__).parents[1], help="the checkout to measure")
    parser.add_argument("--patience", type=float, default=1800, help="seconds after which a run is ended")
    given = parser.parse_args()
    print("| --memory | peak memory | processor time | exit |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="arachne-memory-") as name:
        make_inputs(Path(name))
        for limit in LIMITS:
            peak, seconds, code = measure(given.tree.resolve(), Path(name), limit, given.patience)
            print(f"| {limit or 'default'} | {peak >> 20} MB | {seconds:.1f} s | {code} |", flush=True)


def make_inputs(folder: Path) -> None:
    """Write the demo's network and many noisy copies of its digits into a folder."""
    demo = resources.files("arachne.demo")
    (folder / "net.onnx").write_bytes(demo.joinpath("digits.onnx").read_bytes())
    rng = np.random.default_rng(0)
    with np.load(str(demo.joinpath("digits.npz"))) as stored:
        rows = rng.integers(len(stored["y"]), size=N_INPUTS)
        x = stored["x"][rows] + rng.normal(0, 0.02, (N_INPUTS, *stored["x"].shape[1:]))
        np.savez(folder / "data.npz", x=x.astype(np.float32), y=stored["y"][rows])


def measure(tree: Path, folder: Path, limit: str, patience: float) -> tuple[int, float, str]:
    """Repair in a process of its own; its peak of memory in bytes, seconds of processor time, and exit code."""
    words = ["repair", "net.onnx", "--data", "data.npz", "--target", "*:7", "--search", "de", "--quiet"]
    words += ["--memory", limit] if limit else []
    places = os.pathsep.join(map(str, (tree, tree / "backends")))
    process = subprocess.Popen(
        [sys.executable, "-m", "arachne", *words],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": places},
        stdout=subprocess.DEVNULL,
    )
    ender = threading.Timer(patience, process.terminate)
    ender.start()
    _, status, used = os.wait4(process.pid, 0)
    ender.cancel()
    return used.ru_maxrss * 1024, used.ru_utime + used.ru_stime, str(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main()
