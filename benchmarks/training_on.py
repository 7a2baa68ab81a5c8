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
import json
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.ndimage import rotate, shift, uniform_filter

import arachne
from arachne.choose.budget import Budget
from arachne.choose.select import select_point
from arachne.errors import NothingWithinBudgetError
from arachne.model.values import Array
from benchmarks.whole_pictures import count_right, find_right, fine_tune, halves, scale_pictures, train_network
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


def measure(fault: str) -> dict[str, Any]:
    """Repair one fault, and fine-tune on the same inputs."""
    data = fashion()
    start = np.random.default_rng(0).permutation(len(data.train_labels))[:15_000]
    pictures, labels = scale_pictures(data.train[start]), data.train_labels[start].astype(np.int64)
    model = train_network(pictures, labels, seed=0, epochs=4)
    seen, held = halves(partial(plant, fault=fault), np.random.default_rng(1))
    before = find_right(model, held)
    told: dict[str, Any] = {"before": count_right(held, before, before)}
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
        told[name] = {"by": None if point is None else point.candidate.made_by, **count_right(held, before, right)}
    own = time.process_time()
    fine_tune(model, seen, seed=0)
    told["fine-tuning seconds"] = time.process_time() - own
    told["fine-tuning"] = count_right(held, before, find_right(model, held))
    return told


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
