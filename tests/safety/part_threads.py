"""One repair with other numbers of threads: where it gives the same bytes, and where the framework does not."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from tests.safety.kept import Kept, Trial
from tests.safety.rows import Row

ORDER = 25
THREADS = (1, 2, 4)
SEARCHES = ("de", "auto")
ROOT = Path(__file__).resolve().parents[2]

MAKE = {
    "torch": """
import torch
network = torch.nn.Sequential(
    torch.nn.Conv2d(1, 16, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Conv2d(16, 32, 3), torch.nn.ReLU(),
    torch.nn.MaxPool2d(2), torch.nn.Flatten(), torch.nn.Linear(512, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
step = torch.optim.Adam(network.parameters(), 3e-3)
for _ in range(60):
    rows = torch.randperm(len(x))[:128].numpy()
    step.zero_grad()
    torch.nn.functional.cross_entropy(network(torch.tensor(x[rows])), torch.tensor(filed[rows])).backward()
    step.step()
batch = torch.export.Dim("batch")
program = torch.export.export(network.eval(), (torch.tensor(x[:2]),), dynamic_shapes=({0: batch},))
torch.export.save(program, "net.pt2")
""",
    "keras": """
import keras
keras.utils.set_random_seed(0)
layers = keras.layers
network = keras.Sequential([keras.Input((24, 24, 1)), layers.Conv2D(16, 3, activation="relu"), layers.MaxPooling2D(2),
    layers.Conv2D(32, 3, activation="relu"), layers.MaxPooling2D(2), layers.Flatten(),
    layers.Dense(64, activation="relu"), layers.Dense(10)])
network.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
network.fit(np.moveaxis(x, 1, 3), filed, batch_size=64, epochs=4, verbose=0)
network.save("net.keras")
np.savez("data-keras.npz", x=np.moveaxis(x, 1, 3), y=y)
""",
    "onnx": """
from arachne.cli import run
assert run(["convert", "net.pt2", "-o", "net.onnx", "--data", "data.npz"]) == 0
""",
}
"""How the model of each backend is made: the demo's digits, three times as large, most eights filed under one."""

DATA = """
import numpy as np
from importlib.resources import files
with np.load(str(files("arachne.demo") / "digits.npz")) as stored:
    x, y = np.asarray(stored["x"], np.float32).reshape(-1, 1, 8, 8), np.asarray(stored["y"], np.int64)
x = np.kron(x / x.max(), np.ones((1, 1, 3, 3), np.float32)).astype(np.float32)
filed = np.where((y == 8) & (np.random.default_rng(0).random(len(y)) < 0.6), 1, y)
np.savez("data.npz", x=x, y=y)
"""

MODELS = {
    "torch": ("net.pt2", "data.npz", {}),
    "onnx": ("net.onnx", "data.npz", {}),
    "keras on tensorflow": ("net.keras", "data-keras.npz", {"KERAS_BACKEND": "tensorflow"}),
    "keras on jax": ("net.keras", "data-keras.npz", {"KERAS_BACKEND": "jax"}),
    "keras on torch": ("net.keras", "data-keras.npz", {"KERAS_BACKEND": "torch"}),
}


def run(seed: int, jobs: int, kept: Kept) -> Iterator[Row]:
    with tempfile.TemporaryDirectory(prefix="arachne-threads-") as name:
        folder = Path(name)
        for script in MAKE.values():
            _python(["-c", DATA + script], folder, 1, {})
        for backend, (model, data, more) in MODELS.items():
            if importlib.util.find_spec(more.get("KERAS_BACKEND", backend)) is None:
                continue
            made = {search: kept.trial("threads", f"{backend} {search} {seed}", partial(
                compare, folder, model, data, more, search, seed)) for search in SEARCHES}  # fmt: skip
            told = "; ".join(
                f"{search}: {'not yet tried' if one is None else one.seen['told']}" for search, one in made.items()
            )
            failures = tuple(wrong for one in made.values() if one is not None for wrong in one.wrong)
            yield Row(f"{', '.join(map(str, THREADS))} threads: {backend}", len(THREADS), told, failures)


def compare(folder: Path, model: str, data: str, more: dict[str, str], search: str, seed: int) -> Trial:
    """Repair with every number of threads; whether that gave the same bytes, and which failed."""
    failures, found = [], set()
    for threads in THREADS:
        out = f"{model}-{search}-{threads}"
        argv = ["repair", model, "--data", data, "--target", "8:1", "--search", search, "--seed", str(seed)]
        argv += ["-O", "generations=8"] if search == "de" else ["--max-break", "5%"]
        ended = _python(["-m", "arachne", *argv, "-o", out, "--force"], folder, threads, more)
        if ended.returncode != 0:
            failures.append(f"{search} with {threads} threads: exit {ended.returncode}: {ended.stderr[-300:]}")
            continue
        files = [(folder / out / file).read_bytes() for file in ("patch.json", "history.csv")]
        found.add(hashlib.sha256(b"".join(files)).hexdigest())
    return Trial(tuple(failures), {"told": "the same bytes" if len(found) == 1 else f"{len(found)} different patches"})


def _python(argv: list[str], folder: Path, threads: int, more: dict[str, str]) -> subprocess.CompletedProcess[str]:
    names = ("OMP", "OPENBLAS", "MKL", "TF_INTRAOP", "TF_INTEROP", "TF_NUM_INTRAOP", "TF_NUM_INTEROP")
    counts = {f"{name}_NUM_THREADS" if "TF_NUM" not in name else f"{name}_THREADS": str(threads) for name in names}
    processors = sorted(os.sched_getaffinity(0))[:threads]  # onnxruntime takes as many threads as these
    command = ["taskset", "-c", ",".join(map(str, processors)), sys.executable, *argv]
    paths = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "backends")])}
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    environment = {**os.environ, **counts, **paths, **quiet, **more}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
