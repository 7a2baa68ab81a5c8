"""Peak memory of a repair with `--memory`, search by search and backend by backend: is the limit kept?

    python -m benchmarks.memory_limit                        # every search, on ONNX
    python -m benchmarks.memory_limit --in torch keras tflite  # the default search, on other backends
    python -m benchmarks.memory_limit --below                # limits far below what a search needs, against no limit
    python -m benchmarks.memory_limit --tree ../older        # another checkout, in the same environment

The data are 6,000 inputs of 12,288 bytes, 300 MB as the model takes them, and the limit is 16 MB. What a run takes more
than one on the first 300 of these inputs is compared with the limit and what any repair takes besides
(`tests/unit/test_memory_of_a_repair.py`): labels that are compared, batches under way.

With `--below` they are 10,000 noisy copies of the demo's digits, 2.6 MB.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from arachne.plugins.table import SEARCHERS
from tests.unit.test_memory_of_a_repair import BESIDES, FEWEST_INPUTS, MEMORY, SLACK, WIDTH, make, model

N_INPUTS = 10_000
BELOW = ("", "1MB", "100MB")
ENDINGS = {"onnx": "net.onnx", "torch": "net.pt2", "keras": "net.keras", "tflite": "net.tflite"}


WATCH = """
import os, signal, sys
words = sys.argv[2:]
nowhere = os.open(os.devnull, os.O_WRONLY)
child = os.posix_spawn(words[0], words, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, nowhere, 1)])
signal.signal(signal.SIGALRM, lambda *_: os.kill(child, signal.SIGTERM))
signal.setitimer(signal.ITIMER_REAL, float(sys.argv[1]))
_, status, used = os.wait4(child, 0)
print(used.ru_maxrss, used.ru_utime + used.ru_stime, os.waitstatus_to_exitcode(status))
"""
"""Runs a command from a small process of its own: a peak begins with that of the process that starts it."""


@dataclass(frozen=True)
class Used:
    """The memory and time of a process.

    Attributes:
        peak: The most bytes it held at once.
        seconds: Processor time.
        code: Exit code.
        said: The last line on standard error.
    """

    peak: int
    seconds: float
    code: int
    said: str


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory_limit", description=__doc__)
    parser.add_argument("--in", dest="backends", nargs="+", choices=ENDINGS, default=["onnx"], help="the backends")
    parser.add_argument("--search", nargs="+", help="the searches; all on ONNX, the default on others")
    parser.add_argument("--below", action="store_true", help="limits far below what differential evolution needs")
    parser.add_argument("--tree", type=Path, default=Path(__file__).parents[1], help="the checkout to measure")
    parser.add_argument("--patience", type=float, default=1800, help="seconds after which a run is ended")
    given = parser.parse_args()
    tree = given.tree.resolve()
    with tempfile.TemporaryDirectory(prefix="arachne-memory-") as name:
        if given.below:
            print_below(Path(name), tree, given.patience)
        else:
            print_searches(Path(name), tree, given.backends, given.search, given.patience)


def print_searches(folder: Path, tree: Path, backends: Sequence[str], asked: list[str] | None, patience: float) -> None:
    """Print a row for each search: what the whole data take more than a few of them."""
    make_large(folder, backends)
    most = MEMORY + BESIDES + SLACK
    target = (folder / "target").read_text("utf-8")
    print(f"| backend | search | more than with {FEWEST_INPUTS} inputs | kept: at most {most >> 20} MB | exit |")
    print("|---|---|---|---|---|")
    for backend in backends:
        for search in asked or (sorted(SEARCHERS.ours) if backend == "onnx" else ["auto"]):
            words = [ENDINGS[backend], "--preprocess", "scale=1/255", "--target", target, "--max-break", "90%"]
            words += ["--search", search, "--memory", f"{MEMORY}"]
            words += ["--training", "few"] if search == "tune@training" else []
            few, whole = (measure(tree, folder, [*words, "--data", data], patience) for data in ("few", "large"))
            grown = whole.peak - few.peak
            kept = "refused" if whole.code not in (0, 6) else "yes" if grown <= most else "NO"
            print(f"| {backend} | {search} | {grown / 2**20:.0f} MB | {kept} | {whole.code} |", flush=True)
            if kept == "refused":
                print(f"  {whole.said}", file=sys.stderr)


def make_large(folder: Path, backends: Sequence[str]) -> None:
    """Write the data, the first of them, and a network of two layers in the formats of some backends."""
    for name in ("large", "few"):
        (folder / name).mkdir()
    make(folder / "large")
    (folder / "large" / "target").rename(folder / "target")
    for name in ("x", "y"):
        np.save(folder / "few" / f"{name}.npy", np.load(folder / "large" / f"{name}.npy", "r")[:FEWEST_INPUTS])
    net = model()
    tensors = [net.get_weights(layer.name)[part] for layer in net.layers for part in ("weight", "bias")]
    writers = {"onnx": write_onnx, "torch": write_torch, "keras": write_keras, "tflite": write_tflite}
    for backend in backends:
        writers[backend](folder / ENDINGS[backend], tensors)


def write_onnx(path: Path, tensors: Sequence[np.ndarray[tuple[int, ...], np.dtype[np.float32]]]) -> None:
    from onnx import TensorProto, helper, numpy_helper, save

    names = ("hidden.weight", "hidden.bias", "scores.weight", "scores.bias")
    nodes = [
        helper.make_node("Gemm", ["x", names[0], names[1]], ["h"], transB=1),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Gemm", ["r", names[2], names[3]], ["scores"], transB=1),
    ]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", size])
        for name, size in (("x", WIDTH), ("scores", 10))
    ]
    stored = [
        numpy_helper.from_array(tensor.astype(np.float32), name) for name, tensor in zip(names, tensors, strict=True)
    ]
    save(
        helper.make_model(
            helper.make_graph(nodes, "net", ends[:1], ends[1:], stored),
            ir_version=9,
            opset_imports=[helper.make_opsetid("", 18)],
        ),
        path,
    )


def write_torch(path: Path, tensors: Sequence[np.ndarray[tuple[int, ...], np.dtype[np.float32]]]) -> None:
    import torch
    from torch import nn

    net = nn.Sequential(nn.Linear(WIDTH, 16), nn.ReLU(), nn.Linear(16, 10))
    net.load_state_dict(dict(zip(net.state_dict(), map(torch.tensor, tensors), strict=True)))
    batch = torch.export.Dim("n")
    torch.export.save(torch.export.export(net, (torch.zeros(2, WIDTH),), dynamic_shapes=({0: batch},)), path)


def write_keras(path: Path, tensors: Sequence[np.ndarray[tuple[int, ...], np.dtype[np.float32]]]) -> None:
    make_keras(tensors).save(path)


def write_tflite(path: Path, tensors: Sequence[np.ndarray[tuple[int, ...], np.dtype[np.float32]]]) -> None:
    import tensorflow

    path.write_bytes(tensorflow.lite.TFLiteConverter.from_keras_model(make_keras(tensors)).convert())


def make_keras(tensors: Sequence[np.ndarray[tuple[int, ...], np.dtype[np.float32]]]) -> Any:
    import keras

    layers = [keras.layers.Dense(16, activation="relu"), keras.layers.Dense(10)]
    net = keras.Sequential([keras.Input((WIDTH,)), *layers])
    net.set_weights([tensors[0].T, tensors[1], tensors[2].T, tensors[3]])
    return net


def print_below(folder: Path, tree: Path, patience: float) -> None:
    """Print what `--search de` takes with limits far below what it needs."""
    make_small(folder)
    print("| --memory | peak memory | processor time | exit |\n|---|---|---|---|")
    for limit in BELOW:
        words = ["net.onnx", "--data", "data.npz", "--target", "*:7", "--search", "de"]
        used = measure(tree, folder, [*words, *(["--memory", limit] if limit else [])], patience)
        print(f"| {limit or 'default'} | {used.peak >> 20} MB | {used.seconds:.1f} s | {used.code} |", flush=True)


def make_small(folder: Path) -> None:
    """Write the demo's network and many noisy copies of its digits into a folder."""
    demo = resources.files("arachne.demo")
    (folder / "net.onnx").write_bytes(demo.joinpath("digits.onnx").read_bytes())
    rng = np.random.default_rng(0)
    with np.load(str(demo.joinpath("digits.npz"))) as stored:
        rows = rng.integers(len(stored["y"]), size=N_INPUTS)
        x = stored["x"][rows] + rng.normal(0, 0.02, (N_INPUTS, *stored["x"].shape[1:]))
        np.savez(folder / "data.npz", x=x.astype(np.float32), y=stored["y"][rows])


def measure(tree: Path, folder: Path, words: Sequence[str], patience: float) -> Used:
    """Repair in a process of its own."""
    places = os.pathsep.join(map(str, (tree, tree / "backends")))
    command = [sys.executable, "-m", "arachne", "repair", *words, "--quiet", "--no-cache"]
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", WATCH, str(patience), *command],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": places},
        capture_output=True,
        text=True,
        check=True,
    )
    peak, seconds, code = ran.stdout.split()
    last = (ran.stderr.strip().splitlines() or [""])[-1]
    return Used(int(peak) * 1024, float(seconds), int(code), last)


if __name__ == "__main__":
    main()
