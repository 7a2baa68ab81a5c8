"""Arachne on the model and split the paper's authors' own code was run on: Fashion-MNIST, 784-100-10.

The model and the halves come from `fm_reference.npz` in the data folder (`ARACHNE_DATA`, default `../shared/data`), the
pictures from Debian's package `dataset-fashion-mnist`. For the three most frequent faults of the seen half, five seeds,
faithful and default:

    python examples/study/fm_reference.py
"""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import numpy as np
import torch
from torch import nn

import arachne

DATA = Path(os.environ.get("ARACHNE_DATA", "../shared/data"))
PICTURES = Path("/usr/share/datasets/fashion-mnist")
FAULTS = 3
SEEDS = range(5)
THEIRS = {"6:0": "authors' code, same model: .741 .645 .0349; paper, its own model: .75 .59"}


def test_set() -> tuple[np.ndarray, np.ndarray]:
    """Fashion-MNIST's 10,000 test pictures, flattened and scaled to 0..1, and their labels."""
    pictures, labels = (
        np.frombuffer(gzip.decompress((PICTURES / name).read_bytes()), np.uint8, offset=offset)
        for name, offset in (("t10k-images-idx3-ubyte.gz", 16), ("t10k-labels-idx1-ubyte.gz", 8))
    )
    pictures = pictures.reshape(-1, 784)
    return pictures.astype(np.float32) / 255, labels.astype(np.int64)


def model() -> nn.Module:
    """The reference model: dense, ReLU, dense."""
    stored = np.load(DATA / "fm_reference.npz")
    network = nn.Sequential(nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, 10))
    with torch.no_grad():
        for layer, number in ((network[0], 1), (network[2], 2)):
            layer.weight.copy_(torch.from_numpy(stored[f"W{number}"].T))
            layer.bias.copy_(torch.from_numpy(stored[f"b{number}"]))
    return network


def main() -> None:
    """Print a table: one row per fault and way of repairing, means over the seeds."""
    pictures, labels = test_set()
    halves = np.load(DATA / "fm_reference.npz")
    seen = arachne.LabelledData(pictures[halves["val"]], labels[halves["val"]])
    other = arachne.LabelledData(pictures[halves["eval"]], labels[halves["eval"]])
    backend = arachne.load(model())
    faults = [fault.target for fault in arachne.scan(backend, seen).faults[:FAULTS]]
    print("fault  way       RR_val  RR_eval  BR_eval  accuracy change  weights  generations  seconds")
    for fault in faults:
        for way in ("faithful", "default"):
            rows = []
            for seed in SEEDS:
                result = arachne.repair(
                    backend, seen, fault, faithful=way == "faithful", seed=seed, holdout=other, drop_overlap=True
                )
                val, held = result.evidence.seen, result.evidence.held_out
                change = held.accuracy_after - held.accuracy_before
                seconds = result.seconds["localise"] + result.seconds["search"]
                size = len(result.patch), result.search.generations, seconds
                rows.append((val.repair_rate, held.repair_rate, held.break_rate, change, *size))
            rr, rr_eval, br, change, weights, generations, seconds = np.mean(rows, axis=0)
            print(
                f"{fault:5}  {way:8}  {rr:6.3f}  {rr_eval:7.3f}  {br:7.4f}  {100 * change:+14.2f}p  {weights:7.1f}"
                f"  {generations:11.1f}  {seconds:7.1f}"
            )
        if fault in THEIRS:
            print(f"       {THEIRS[fault]}")


if __name__ == "__main__":
    main()
