"""Repair false and missed labels of traffic signs' attributes, against raising a threshold and fine-tuning.

    python -m benchmarks.multilabel            # measure what benchmarks/results has not, and print the table
    python -m benchmarks.multilabel --again    # measure everything anew
    python -m benchmarks.multilabel --print    # print what benchmarks/results has, and measure nothing
    python -m benchmarks.multilabel --seed 1   # with a second network, other planted labels and another search

Eight attributes (shape, colour, category) of GTSRB's 43 signs are the labels. One network learns three planted
faults, one is clean, and its three most frequent faults are natural. Arachne repairs each with its defaults and a
budget of 0.5 %. Both rivals are then given the best they could do on the held-out inputs at no more damage than the
repair did there, which favours them: every threshold of the label, and every step of nine runs of fine-tuning the
last layer.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import arachne
from arachne.data.labelled import LabelledData
from arachne.data.part import Part
from arachne.model.values import Array
from examples.study.data import gtsrb

RESULTS = Path(__file__).parent / "results" / "multilabel.json"
ROUND = [*range(11), 15, 16, 17, *range(32, 43)]
ATTRIBUTES: dict[str, list[int]] = {
    "speed": [0, 1, 2, 3, 4, 5, 7, 8],
    "round": ROUND,
    "triangle": [11, 13, *range(18, 32)],
    "red": [*range(6), *range(7, 12), *range(13, 32)],
    "blue": [*range(33, 41)],
    "warning": [11, *range(18, 32)],
    "prohibits": [9, 10, 15, 16, 17],
    "ends": [6, 32, 41, 42],
}
NAMES = tuple(ATTRIBUTES)
PLANTED = {"false:prohibits": (25, 1), "missed:blue": (38, 0), "false:triangle": (12, 1)}
"""The fault, the sign whose label is wrong in a part of the training data, and the wrong label."""

PLANTED_SHARE, SIDE, TRAINED, JUDGED, EPOCHS = 0.6, 24, 8000, 4000, 6


@dataclass(frozen=True)
class Signs:
    """Pictures `(n, 3, side, side)` with their attributes `(n, labels)`, to train on and to judge by."""

    taught: tuple[Array, Array]
    unseen: tuple[Array, Array]


def load_signs(planted: bool, seed: int) -> Signs:
    """Load pictures, half as large; with planted faults, some labels to train on are wrong."""
    data, rng = gtsrb(), np.random.default_rng(seed)
    parts = []
    for x, y, most in ((data.train, data.train_labels, TRAINED), (data.test, data.test_labels, JUDGED)):
        rows = np.sort(rng.permutation(len(y))[:most])
        parts.append((_shrink(np.asarray(x)[rows]), np.asarray(y)[rows]))
    labels = [np.stack([np.isin(y, ATTRIBUTES[name]) for name in NAMES], axis=1).astype(np.int64) for _, y in parts]
    for fault, (sign, wrong) in PLANTED.items() if planted else ():
        rows = np.flatnonzero((parts[0][1] == sign) & (rng.random(len(parts[0][1])) < PLANTED_SHARE))
        labels[0][rows, NAMES.index(fault.partition(":")[2])] = wrong
    return Signs((parts[0][0], labels[0]), (parts[1][0], labels[1]))


def _shrink(x: Array) -> Array:
    pictures = torch.tensor(x, dtype=torch.float32)
    pictures = pictures if pictures.shape[1] == 3 else pictures.permute(0, 3, 1, 2)
    pictures = pictures / 255 if float(pictures.max()) > 2 else pictures
    return np.asarray(nn.functional.adaptive_avg_pool2d(pictures, SIDE).numpy())


def train(signs: Signs, seed: int) -> nn.Sequential:
    """Train a small network; its last layer is the last module."""
    torch.manual_seed(seed)
    width = 24 * (SIDE // 4) ** 2
    model = nn.Sequential(
        nn.Conv2d(3, 12, 5, stride=2, padding=2),
        nn.ReLU(),
        nn.Conv2d(12, 24, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(width, 64),
        nn.ReLU(),
        nn.Linear(64, len(NAMES)),
    )
    x, y = torch.tensor(signs.taught[0]), torch.tensor(signs.taught[1]).float()
    optimiser = torch.optim.Adam(model.parameters(), 2e-3)
    for _ in range(EPOCHS):
        for rows in torch.split(torch.randperm(len(x)), 128):
            optimiser.zero_grad()
            nn.functional.binary_cross_entropy_with_logits(model(x[rows]), y[rows]).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
    return model.eval()


def counts(part: Part, logits: Array) -> tuple[int, int]:
    """Return how many negatives are repaired and how many positives broken with these outputs `(n, labels)`."""
    right = part.task.correct(part.read(logits).scores, part.labels)
    return int(right[part.negatives].sum()), int((~right[part.positives]).sum())


def moved_thresholds(part: Part, label: int) -> Iterator[Array]:
    """Yield the outputs as every other threshold of a label would read them."""
    for limit in np.unique(part.outputs[:, label]):
        moved = part.outputs.copy()
        moved[:, label] -= limit
        yield moved


def fine_tuned(model: nn.Sequential, seen: Part, held_out: Part) -> Iterator[Array]:
    """Yield the held-out outputs after every step of nine runs that train the last layer on what the repair saw."""
    with torch.no_grad():
        here, there = (model[:-1](torch.tensor(np.asarray(part.data.inputs))) for part in (seen, held_out))
    labels = torch.tensor(seen.data.labels).float()
    decisive = torch.zeros(labels.numel())
    decisive[torch.tensor(seen.negatives)] = 1  # every label is known, so decisions are labels, row after row
    for rate in (1e-4, 1e-3, 1e-2):
        for weight in (1.0, 10.0, 100.0):
            last = nn.Linear(here.shape[1], labels.shape[1])
            last.load_state_dict(model[-1].state_dict())
            optimiser = torch.optim.Adam(last.parameters(), rate)
            weights = 1 + (weight - 1) * decisive.reshape(labels.shape)
            for _ in range(60):
                optimiser.zero_grad()
                loss = nn.functional.binary_cross_entropy_with_logits(last(here), labels, weights)
                loss.backward()  # type: ignore[no-untyped-call]
                optimiser.step()
                with torch.no_grad():
                    yield np.asarray(last(there).numpy())


def best_within(part: Part, outputs: Iterator[Array], most: int) -> int:
    """Return the most negatives that any of these outputs repairs while it breaks at most so many positives."""
    found = [repaired for repaired, broken in (counts(part, own) for own in outputs) if broken <= most]
    return max(found, default=0)


def measure(model: nn.Sequential, data: LabelledData, fault: str, seed: int) -> dict[str, Any]:
    """Repair one fault by default, and give both rivals their best at the same held-out damage."""
    result = arachne.repair(model, data, fault, task="multilabel", max_break=0.005, seed=seed)
    part, found = result.split.held_out, result.evidence.held_out
    label = NAMES.index(fault.partition(":")[2])
    return {
        "negatives": found.negatives,
        "repaired": found.repaired,
        "broken": found.broken,
        "positives": found.positives,
        "threshold": best_within(part, moved_thresholds(part, label), found.broken),
        "fine-tuning": best_within(part, fine_tuned(model, result.split.seen, part), found.broken),
        "verdict": result.evidence.verdict.word,
        "weights": len(result.patch),
    }


def main() -> None:
    """Measure what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--again", action="store_true", help="Measure everything anew.")
    parser.add_argument("--seed", type=int, default=0, help="Of the pictures, the network and the search.")
    parser.add_argument("--print", action="store_true", dest="only_print", help="Measure nothing.")
    asked = parser.parse_args()
    known: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for planted in () if asked.only_print else (True, False):
        kind = f"{asked.seed} {'planted' if planted else 'natural'}"
        done = [name for name in known if name.startswith(kind)]
        if len(done) == 3 and not asked.again:
            continue
        signs = load_signs(planted, asked.seed)
        model, data = train(signs, asked.seed), LabelledData(*signs.unseen, class_names=NAMES)
        found = arachne.scan(model, data, task="multilabel").faults
        faults = list(PLANTED) if planted else [fault.target for fault in found[:3]]
        for fault in faults:
            if asked.again or f"{kind} {fault}" not in known:
                known[f"{kind} {fault}"] = measure(model, data, fault, asked.seed)
                RESULTS.write_text(json.dumps(known, indent=1) + "\n")
    columns = ("seed, fault", "held-out negatives", "broken by all three", "Arachne", "threshold", "fine-tuning")
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for name, row in known.items():
        cells = (name, row["negatives"], f"{row['broken']} of {row['positives']:,}", row["repaired"])
        print(f"| {' | '.join(map(str, (*cells, row['threshold'], row['fine-tuning'])))} |")


if __name__ == "__main__":
    main()
