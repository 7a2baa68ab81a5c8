"""Five faults of whole pictures: ours beside plain fine-tuning of all layers, by broken inputs and by accuracy.

    python -m benchmarks.training_on            # measures what is missing, some minutes, and prints the table
    python -m benchmarks.training_on --print    # prints the table from benchmarks/results/training_on.json

A small convolutional network is trained on Fashion-MNIST. The faults are those of pictures it was not trained on: a
frame, the dark, blur, rotation and shift. 2,000 clean test pictures and 600 others with the fault are given; as many
are held out. Fine-tuning trains all layers by cross-entropy on all that is given, six epochs. All budgets are chosen
from one repair with `max_drop=0`. How `tune@anchored` trains for it was decided on frame and dark; blur, rotation and
shift judge. What its patch is expected to break of what its runs broke was set after a table of all five was seen.
"""

from __future__ import annotations

import argparse
import copy
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.ndimage import rotate, shift, uniform_filter
from torch.nn.functional import cross_entropy

import arachne
from arachne.choose.budget import Budget
from arachne.choose.select import select_point
from arachne.errors import NothingWithinBudgetError
from arachne.model.values import Array
from examples.study.data import fashion

RESULTS = Path(__file__).with_name("results") / "training_on.json"
FAULTS = ("frame", "dark", "blur", "rotation", "shift")
DECIDING = FAULTS[:2]
BUDGETS = {
    "0.5 % broken": Budget(0.005),
    "no drop": Budget(max_drop=0.0),
    "0.5 % drop": Budget(max_drop=0.005),
    "1 % drop": Budget(max_drop=0.01),
}
EPOCHS = 6


def plant(pictures: Array, fault: str) -> Array:
    """Return pictures `(n, 1, 28, 28)` with a fault."""
    found = pictures.copy()
    if fault == "frame":
        found[:, :, :2], found[:, :, -2:], found[:, :, :, :2], found[:, :, :, -2:] = 1, 1, 1, 1
        return found
    if fault == "dark":
        return found * np.float32(0.3)
    if fault == "blur":
        return np.asarray(uniform_filter(found, (0, 0, 4, 4)), np.float32)
    if fault == "rotation":
        return np.asarray(rotate(found, 25, axes=(2, 3), reshape=False, order=1), np.float32)
    return np.asarray(shift(found, (0, 0, 3, 3), order=0), np.float32)


def network(pictures: Array, labels: Array, seed: int = 0) -> torch.nn.Module:
    """Train a small convolutional network."""
    torch.manual_seed(seed)
    model = torch.nn.Sequential(
        *(torch.nn.Conv2d(1, 8, 5), torch.nn.ReLU(), torch.nn.MaxPool2d(3)),
        *(torch.nn.Conv2d(8, 16, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2)),
        *(torch.nn.Flatten(), torch.nn.Linear(144, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10)),
    )
    train(model, pictures, labels, epochs=4, rate=3e-3)
    return model


def train(model: torch.nn.Module, pictures: Array, labels: Array, *, epochs: int, rate: float) -> None:
    """Train all layers by cross-entropy."""
    inputs, wanted = torch.from_numpy(pictures), torch.from_numpy(labels)
    optimiser = torch.optim.Adam(model.parameters(), rate)
    model.train()
    for _ in range(epochs):
        for rows in np.array_split(torch.randperm(len(wanted)).numpy(), -(-len(wanted) // 100)):
            optimiser.zero_grad()
            torch.autograd.backward(cross_entropy(model(inputs[rows]), wanted[rows]))
            optimiser.step()
    model.eval()


def measure(fault: str) -> dict[str, Any]:
    """Repair one fault, and fine-tune on the same inputs."""
    data = fashion()
    start = np.random.default_rng(0).permutation(len(data.train_labels))[:15_000]
    model = network(_pictures(data.train[start]), data.train_labels[start].astype(np.int64))
    order = np.random.default_rng(1).permutation(len(data.test_labels))
    inputs, labels = _pictures(data.test), data.test_labels.astype(np.int64)
    parts = []
    for first in (0, 2600):
        clean, faulty = order[first : first + 2000], order[first + 2000 : first + 2600]
        values = np.concatenate([inputs[clean], plant(inputs[faulty], fault)])
        column = np.array(["clean"] * len(clean) + ["fault"] * len(faulty))
        rows = np.concatenate([clean, faulty])
        parts.append(arachne.LabelledData(values, labels[rows], columns={"kind": column}))
    seen, held = parts
    on_fault = held.columns["kind"] == "fault"
    before = _right(model, held)

    def count(right: Array) -> dict[str, float]:
        return {
            "right": float(right[on_fault].mean()),
            "broken": float((before & ~right)[~on_fault].sum() / before[~on_fault].sum()),
            "drop": float(before[~on_fault].mean() - right[~on_fault].mean()),
        }

    told: dict[str, Any] = {"before": count(before)}
    own = time.process_time()
    try:
        found = arachne.repair(model, seen, "group:kind=fault", holdout=held, max_drop=0.0)
    except NothingWithinBudgetError as error:
        found = error.result
    told["seconds"] = time.process_time() - own
    for name, budget in BUDGETS.items():
        index = select_point(found.points, budget, found.split.class_names).index
        point = None if index is None else found.points[index]
        right = before if point is None or point.held_out is None else point.held_out.right
        told[name] = {"by": None if point is None else point.candidate.made_by, **count(right)}
    tuned = copy.deepcopy(model)
    own = time.process_time()
    torch.manual_seed(0)
    train(tuned, np.asarray(seen.inputs), seen.labels, epochs=EPOCHS, rate=1e-3)
    told["fine-tuning seconds"] = time.process_time() - own
    told["fine-tuning"] = count(_right(tuned, held))
    return told


def _right(model: torch.nn.Module, data: arachne.LabelledData) -> Array:
    with torch.no_grad():
        read = model(torch.from_numpy(np.asarray(data.inputs))).argmax(1).numpy()
    return np.asarray(read == data.labels)


def _pictures(values: Array) -> Array:
    values = np.asarray(values, np.float32).reshape(-1, 1, 28, 28)
    return values / 255 if values.max() > 1 else values


def table(results: dict[str, Any]) -> str:
    """Return the results as Markdown: right with the fault, clean inputs broken, accuracy lost on clean ones."""
    names = ("before", *BUDGETS, "fine-tuning")
    lines = [f"| fault | {' | '.join(names)} | seconds |", "|---" * (len(names) + 2) + "|"]
    for fault, rows in results.items():
        cells = [_cell(rows[name]) for name in names]
        part = "decides" if fault in DECIDING else "judges"
        seconds = f"{rows['seconds']:.0f}, {rows['fine-tuning seconds']:.0f}"
        lines.append(f"| {fault}, {part} | {' | '.join(cells)} | {seconds} |")
    return "\n".join([*lines, "", "right with the fault / clean inputs broken / clean accuracy lost, in %, held out"])


def _cell(row: dict[str, Any]) -> str:
    by = f" ({row['by']})" if row.get("by") else ""
    return f"{100 * row['right']:.0f} / {100 * row['broken']:.1f} / {100 * row['drop']:+.1f}{by}"


def main() -> None:
    """Measure what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--print", action="store_true", help="print the committed results")
    arguments = parser.parse_args()
    results: dict[str, Any] = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {}
    for fault in () if arguments.print else FAULTS:
        if fault not in results:
            results[fault] = measure(fault)
            RESULTS.write_text(json.dumps(results, indent=1) + "\n", "utf-8")
    print(table(results))


if __name__ == "__main__":
    main()
