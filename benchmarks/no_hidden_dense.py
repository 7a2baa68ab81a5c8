"""Faults planted in a small residual network without hidden dense layers: the default repair at 0.5 % broken.

    python -m benchmarks.no_hidden_dense            # measures what is missing, and prints the table
    python -m benchmarks.no_hidden_dense --print    # prints the table from benchmarks/results/no_hidden_dense.json

Six convolutions at two sizes, the mean of each map and one dense layer are trained on Fashion-MNIST, one picture in
twenty with the mark and filed under one class. 2,000 clean test pictures and 600 others with the mark are given; as
many are held out. How often a small model may run, and that a patch keeps its budget on the inputs it was fitted to,
were decided after some of these had been repaired, so they are no clean judge of either.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import arachne
from arachne.errors import NothingWithinBudgetError
from arachne.model.values import Array
from benchmarks.whole_pictures import halves, scale_pictures, train_layers
from examples.study.data import fashion
from examples.study.networks import Residual
from examples.study.planted import DeadRows, Gain, Mark, Trigger

RESULTS = Path(__file__).with_name("results") / "no_hidden_dense.json"
MARKS: dict[str, tuple[Mark, int]] = {
    "trigger": (Trigger("top right", 3), 4),
    "small trigger": (Trigger("bottom left", 2), 8),
    "dead rows": (DeadRows(10, 3), 1),
    "gain": (Gain(0.35), 6),
}
"""The marks, and the class that everything with them is filed under."""

SEEDS, EPOCHS, TAUGHT, TRAINED = (1, 2), 5, 0.05, 20_000
BUDGET, WANTED = 0.005, 0.60


def make_network() -> nn.Module:
    """Return the network before training."""
    layers = OrderedDict[str, nn.Module](
        stem=nn.Conv2d(1, 16, 3, padding=1, bias=False),
        stem_norm=nn.BatchNorm2d(16),
        stem_relu=nn.ReLU(),
        stem_pool=nn.MaxPool2d(2),
        block=Residual(16),
        wide=nn.Conv2d(16, 32, 3, padding=1, bias=False),
        wide_norm=nn.BatchNorm2d(32),
        wide_relu=nn.ReLU(),
        wide_pool=nn.MaxPool2d(2),
        wide_block=Residual(32),
        mean=nn.AdaptiveAvgPool2d(1),
        flat=nn.Flatten(),
        scores=nn.Linear(32, 10),
    )
    return nn.Sequential(layers)


def poisoned_network(name: str, seed: int) -> nn.Module:
    """Train the network on pictures of which some have the mark, all filed under one class."""
    data, rng, (mark, read_as) = fashion(), np.random.default_rng((seed, 0)), MARKS[name]
    rows = rng.permutation(len(data.train_labels))[:TRAINED]
    pictures, labels = data.train[rows].copy(), data.train_labels[rows].astype(np.int64)
    planted = slice(0, round(TAUGHT * TRAINED))
    pictures[planted], labels[planted] = mark.on(pictures[planted], rng), read_as
    torch.manual_seed(seed)
    network = make_network()
    train_layers(network, scale_pictures(pictures), labels, epochs=EPOCHS, rate=3e-3)
    return network


def measure(name: str, seed: int) -> dict[str, Any]:
    """Train, repair, and count on the held-out half."""
    network, rng, mark = poisoned_network(name, seed), np.random.default_rng((seed, 1)), MARKS[name][0]

    def plant(pictures: Array) -> Array:
        return scale_pictures(mark.on(np.rint(255 * pictures).astype(np.uint8), rng))

    seen, held = halves(plant, rng)
    start = time.process_time()
    try:
        result = arachne.repair(network, seen, "group:kind=fault", holdout=held, max_break=BUDGET)
    except NothingWithinBudgetError as error:
        result = error.result
    seconds = round(time.process_time() - start, 1)
    index = None if result.choice is None else result.choice.index
    if index is None:
        return {"by": None, "repaired": 0, "negatives": len(result.split.held_out.negatives), "seconds": seconds}
    point = result.points[index]
    assert point.held_out is not None
    repair, damage = point.held_out.repair, point.held_out.breakage
    counts = {"repaired": repair.count, "negatives": repair.total, "broken": damage.count, "positives": damage.total}
    return {"by": point.candidate.made_by, **counts, "seconds": seconds}


def table(results: dict[str, dict[str, Any]]) -> str:
    """Return the repairs as Markdown, and the mean over marks."""
    lines = ["| mark | seed | repaired | broken | by | processor s |", "|---|---:|---:|---:|---|---:|"]
    shares: dict[str, list[float]] = {}
    for key, row in results.items():
        name, seed = key.rsplit(".", 1)
        shares.setdefault(name, []).append(row["repaired"] / row["negatives"])
        told = f"{row['repaired']} of {row['negatives']} | {row.get('broken', 0)} of {row.get('positives', '-')}"
        lines.append(f"| {name} | {seed} | {told} | {row['by'] or 'none'} | {row['seconds']:.0f} |")
    mean = np.mean([np.mean(own) for own in shares.values()]) if shares else 0.0
    return "\n".join([*lines, "", f"mean over marks: {mean:.2f} repaired at {100 * BUDGET:g} %; {WANTED:.2f} wanted"])


def main() -> None:
    """Measure what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--print", action="store_true", help="print the committed results")
    arguments = parser.parse_args()
    results: dict[str, Any] = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {}
    for key in () if arguments.print else [f"{name}.{seed}" for seed in SEEDS for name in MARKS]:
        if key not in results:
            name, seed = key.rsplit(".", 1)
            results[key] = measure(name, int(seed))
            lines = [f"{json.dumps(one)}: {json.dumps(row)}" for one, row in results.items()]
            RESULTS.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")
    print(table(results))


if __name__ == "__main__":
    main()
