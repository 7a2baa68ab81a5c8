"""Measure the processor time of one repair with the threads it chooses itself against one thread, beside a load.

    python -m benchmarks.threads                    an LSTM-64 on 5,000 sequences, `--exclude out`, torch
    python -m benchmarks.threads onnx --load 8      the same network in onnxruntime, beside 8 busy processes

Both repairs run in this one run, one after the other. The default should take at most 1.3 times the processor time of
the one with a single thread, and write the same patch.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from arachne.model.values import Array

VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "ARACHNE_THREADS")
BUSY = "while True: pass"
N, STEPS, WIDTH, CLASSES = 5000, 20, 16, 6

FILES = {"torch": "net.pt2", "onnx": "net.onnx", "keras": "net.keras"}


def main() -> None:
    """Print processor times and their ratio."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.threads", description=__doc__)
    parser.add_argument("backend", nargs="?", default="torch", choices=FILES)
    parser.add_argument("--load", type=int, default=0, help="busy processes beside it")
    parser.add_argument("--inputs", type=int, default=N)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, given.backend, given.inputs)
        with busy(given.load):
            found = {threads: repair(folder, given.backend, threads) for threads in (1, None)}
    (one, patch), (own, other) = found[1], found[None]
    load = os.getloadavg()[0]
    print(
        f"{given.backend}, LSTM-64, {given.inputs:,} sequences, --exclude out, load {load:.0f}: {own:.1f} s of "
        f"processor time with default threads, {one:.1f} s with one: {own / one:.2f} x (1.3 wanted); "
        f"{'the same patch' if patch == other else 'ANOTHER PATCH'}"
    )


def make_sequences(inputs: int) -> tuple[Array, Array, Array]:
    """Make up sequences `(inputs, STEPS, WIDTH)`, their labels, and the labels that a network is trained on."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, CLASSES, inputs)
    means = rng.normal(0, 1, (CLASSES, STEPS, WIDTH))
    x = (means[y] * 0.35 + rng.normal(0, 1, (inputs, STEPS, WIDTH))).astype(np.float32)
    return x, y, np.where((y == 3) & (rng.random(inputs) < 0.7), 1, y)


def write(folder: Path, backend: str, inputs: int) -> None:
    """Train a network for a moment, with a fault in its data, and write it and the data."""
    x, y, filed = make_sequences(inputs)
    np.savez(folder / "data.npz", x=x, y=y)
    if backend == "keras":
        _write_keras(folder, x, filed)
    else:
        _write_torch(folder, x, filed, onnx=backend == "onnx")


def _write_torch(folder: Path, x: Array, y: Array, *, onnx: bool) -> None:
    import torch

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = torch.nn.LSTM(WIDTH, 64, batch_first=True)
            self.out = torch.nn.Linear(64, CLASSES)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.out(self.lstm(x)[0][:, -1])
            return found

    torch.manual_seed(0)
    torch.set_num_threads(1)
    network = Network()
    optimiser = torch.optim.Adam(network.parameters(), 5e-3)
    for step in range(120):
        rows = slice(step % 20 * 128, step % 20 * 128 + 128)
        optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(network(torch.tensor(x[rows])), torch.tensor(y[rows]))
        loss.backward()  # type: ignore[no-untyped-call]  # torch has no type for it
        optimiser.step()
    network.eval()
    if onnx:
        example = (torch.tensor(x[:2]),)
        torch.onnx.export(
            network, example, str(folder / "net.onnx"), dynamo=False, input_names=["x"], dynamic_axes={"x": {0: "n"}}
        )
        return
    batch = torch.export.Dim("batch")
    program = torch.export.export(network, (torch.tensor(x[:2]),), dynamic_shapes=({0: batch},))
    torch.export.save(program, folder / "net.pt2")


def _write_keras(folder: Path, x: Array, y: Array) -> None:
    import keras

    keras.utils.set_random_seed(0)
    layers = keras.layers
    network = keras.Sequential(
        [keras.Input((STEPS, WIDTH)), layers.LSTM(64, name="lstm"), layers.Dense(CLASSES, name="out")]
    )
    network.compile(keras.optimizers.Adam(5e-3), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    network.fit(x[:2560], y[:2560], batch_size=128, epochs=6, verbose=0)
    network.save(folder / "net.keras")


def repair(folder: Path, backend: str, threads: int | None) -> tuple[float, str]:
    """Repair the fault; return the processor time, and the hash of the changes in the patch."""
    out = folder / f"fix-{threads}"
    environment = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    environment |= {} if threads is None else dict.fromkeys(VARIABLES, str(threads))
    argv = [
        FILES[backend],
        "--data",
        "data.npz",
        "--target",
        "3:1",
        "--exclude",
        "out",
        "--max-break",
        "5%",
        "-o",
        out.name,
    ]
    before = _used()
    command = [sys.executable, "-m", "arachne", "repair", *argv, "--quiet", "-o", out.name]
    subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)
    return _used() - before, hashlib.sha256((out / "patch.json").read_bytes()).hexdigest()


def _used() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@contextmanager
def busy(number: int) -> Iterator[None]:
    """Keep processors busy with other work."""
    running = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(number)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


if __name__ == "__main__":
    main()
