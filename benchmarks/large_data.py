"""How much memory do commands take on a million inputs of Fashion-MNIST's size? Each runs in a process of its own.

python -m benchmarks.large_data FOLDER [--inputs N] [--memory SIZE] [--kind npy|npz|parquet]
    [--network mlp|convnet] [--search NAME] [--only NAMES]

The inputs are Fashion-MNIST's test pictures again and again, each time with other noise, as bytes in an npy file; they
are made once and stay in the folder, with a network that is trained for some seconds. Without Debian's package
`dataset-fashion-mnist` both are made up. What is printed for each command is the largest number of bytes that its
process ever had in memory (`ru_maxrss`), frameworks, interpreter and all, its processor time, and how long it took.
Results go to `benchmarks/results/large_data.json`.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

from arachne.model.values import Array
from benchmarks.subjects import PICTURES

RESULTS = Path(__file__).parent / "results" / "large_data.json"
INPUTS = 1_000_000
STEPS = "scale=1/255 shape=1x28x28"
NOISE = 24.0
"""Standard deviation of the noise, in grey levels."""

LIMIT = 2 << 30
"""The limit that every command should stay under."""


def convnet() -> nn.Module:
    """Two convolutions and two dense layers."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(784, 100),
        nn.ReLU(),
        nn.Linear(100, 10),
    )


def pictures(which: str) -> tuple[Array, Array]:
    """Fashion-MNIST's, or made-up ones of the same shape."""
    if not PICTURES.is_dir():
        rng = np.random.default_rng(which == "train")
        labels = rng.integers(0, 10, 10_000)
        means = np.random.default_rng(7).integers(0, 200, (10, 28, 28))
        return np.clip(means[labels] + rng.normal(0, 60, (10_000, 28, 28)), 0, 255).astype(np.uint8), labels
    with gzip.open(PICTURES / f"{which}-images-idx3-ubyte.gz") as stream:
        x = np.frombuffer(stream.read(), np.uint8, offset=16).reshape(-1, 28, 28)
    with gzip.open(PICTURES / f"{which}-labels-idx1-ubyte.gz") as stream:
        return x, np.frombuffer(stream.read(), np.uint8, offset=8).astype(np.int64)


def mlp() -> nn.Module:
    """One hidden layer of 100."""
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, 10))


NETWORKS = {"mlp": mlp, "convnet": convnet}


def make_model(path: Path, network: str) -> None:
    """Train the network for one pass over 20,000 pictures and write it as an exported program."""
    torch.manual_seed(0)
    x, y = pictures("train")
    net = NETWORKS[network]()
    optimiser = torch.optim.Adam(net.parameters(), 2e-3)
    for start in range(0, min(len(x), 20_000), 64):
        batch = torch.from_numpy(x[start : start + 64].astype(np.float32) / 255)[:, None]
        optimiser.zero_grad()
        loss = nn.functional.cross_entropy(net(batch), torch.from_numpy(np.array(y[start : start + 64])))
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    net.eval()
    rows = torch.export.Dim("n", min=1, max=1 << 16)
    torch.export.save(torch.export.export(net, (torch.zeros(4, 1, 28, 28),), dynamic_shapes=({0: rows},)), path)


def make_npy(folder: Path, n: int) -> None:
    """Pictures with noise, written piece by piece."""
    x, y = pictures("t10k")
    rng = np.random.default_rng(0)
    folder.mkdir()
    out = np.lib.format.open_memmap(folder / "x.npy", "w+", np.uint8, (n, 28, 28))
    for start in range(0, n, 10_000):
        own = x[np.arange(start, min(start + 10_000, n)) % len(x)]
        noisy = own + NOISE * rng.standard_normal(own.shape, np.float32) * (own > 0)
        out[start : start + len(own)] = np.clip(noisy, 0, 255)
    out.flush()
    np.save(folder / "y.npy", y[np.arange(n) % len(y)])


def make_other(npy: Path, path: Path) -> None:
    """Write the data as an uncompressed npz or as parquet files of 100,000 rows each."""
    x, y = np.load(npy / "x.npy", mmap_mode="r"), np.load(npy / "y.npy")
    if path.suffix == ".npz":
        np.savez(path, x=x, y=y)
        return
    import pyarrow
    from pyarrow import parquet

    path.mkdir()
    for number, start in enumerate(range(0, len(x), 100_000)):
        rows = np.asarray(x[start : start + 100_000]).reshape(-1, 784)
        lists = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(rows.ravel()), 784)
        table = pyarrow.table({"x": lists, "label": y[start : start + 100_000]})
        parquet.write_table(table, path / f"part-{number:03}.parquet", row_group_size=20_000)


def measure_command(words: list[str], log: Path) -> dict[str, int]:
    """Run a command; return its seconds, its peak memory and its exit code."""
    start = time.perf_counter()
    with log.open("w") as stream:
        process = subprocess.Popen([sys.executable, "-m", "arachne", *words], stdout=stream, stderr=stream)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return {
        "processor_seconds": round(usage.ru_utime + usage.ru_stime),
        "elapsed_seconds": round(time.perf_counter() - start),
        "load": round(os.getloadavg()[0]),
        "peak_mebibytes": round(usage.ru_maxrss / 1024),
        "exit": process.returncode,
    }


def main() -> None:
    """Make what is missing, run the commands, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--inputs", type=int, default=INPUTS)
    parser.add_argument("--memory", default="1GiB")
    parser.add_argument("--kind", choices=["npy", "npz", "parquet"], default="npy")
    parser.add_argument("--network", choices=list(NETWORKS), default="mlp")
    parser.add_argument("--search", default="auto")
    parser.add_argument("--only", default="scan,localise,repair,evaluate")
    parser.add_argument("--results", type=Path, default=RESULTS)
    chosen = parser.parse_args()
    folder = chosen.folder
    folder.mkdir(parents=True, exist_ok=True)
    model, npy = folder / f"{chosen.network}.pt2", folder / f"npy-{chosen.inputs}"
    if not model.exists():
        make_model(model, chosen.network)
    if not npy.exists():
        make_npy(npy, chosen.inputs)
    names = {"npy": npy, "npz": folder / f"{chosen.inputs}.npz", "parquet": folder / f"parquet-{chosen.inputs}"}
    data = names[chosen.kind]
    if not data.exists():
        make_other(npy, data)
    common = [str(model), "--data", str(data), "--preprocess", STEPS, "--memory", chosen.memory]
    out = folder / "fix"
    commands = {
        "scan": ["scan", *common],
        "localise": ["localise", *common, "--target", "6:0"],
        "repair": ["repair", *common, "--target", "6:0", "--search", chosen.search, "-o", str(out), "--force"],
        "evaluate": ["evaluate", *common, "--target", "6:0", "--patch", str(out / "patch.json")],
    }
    over = []
    for name in chosen.only.split(","):
        found = measure_command(commands[name], folder / f"{name}.log")
        print(
            f"{name}: {chosen.inputs:,} inputs, peak {found['peak_mebibytes']:,} MiB, {found['processor_seconds']:,} s "
            f"of processor time, {found['elapsed_seconds']:,} s, exit {found['exit']}",
            flush=True,
        )
        known = json.loads(chosen.results.read_text(encoding="utf-8")) if chosen.results.exists() else {}
        title = f"{name} {chosen.search}" if name == "repair" else name
        known[f"{title}: {chosen.network}, {chosen.kind}, {chosen.inputs:,} inputs, --memory {chosen.memory}"] = found
        chosen.results.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
        over += [name] if found["peak_mebibytes"] << 20 >= LIMIT or found["exit"] not in (0, 1) else []
    if over:
        sys.exit(f"over 2 GiB or failed: {', '.join(over)}; the logs are in '{folder}'")


if __name__ == "__main__":
    main()
