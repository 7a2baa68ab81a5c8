"""Shrink the gap between two groups of people with a repair, and see who pays.

Without data of your own it reads handwritten digits: one in thirty of the training data slants, and slanted
digits are read worse. With `ARACHNE_DATA` set (see examples/study) it is the gender of faces on LFW, as in the paper's
RQ6; the network is trained once, some minutes, and kept.

    pip install "arachne-repair[torch]" scikit-learn
    python examples/fairness.py [FOLDER]

The same from the command line, for a model and data in files:

    arachne repair model.pt2 --data faces.npz --target group:female --objective gap --max-break 2% -o fix/
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

import arachne

ROOT = Path(__file__).resolve().parents[1]


def main(folder: Path | None = None) -> arachne.RepairResult:
    """Repair by the accuracy gap, print what that did, and keep the page where a folder is given."""
    if os.environ.get("ARACHNE_DATA"):
        model, data, target = faces()
        more: dict[str, Any] = {"group_by": "person"}  # nobody is on both sides
    else:
        model, data, target = slanted_digits()
        more = {}
    result = arachne.repair(model, data, target, objective="gap", max_break=0.02, **more)
    print(result)
    fairness = result.evidence.held_out.fairness
    for group in fairness.groups if fairness else ():
        low, high = group.after.interval
        print(f"{group.name}: {group.before.value:.1%} -> {group.after.value:.1%} (95 %: {low:.1%} to {high:.1%})")
    if folder is not None:
        result.save(folder)
        print(f"the page is {folder / 'report.html'}")
    return result


def faces() -> tuple[Any, arachne.LabelledData, str]:
    """The study's network for gender on LFW, and its test faces with columns `gender` and `person`."""
    sys.path.insert(0, str(ROOT))
    from examples.study.subjects import SUBJECTS, facts_of, load_subject, train_subject, whole_test

    if facts_of("lfw-vgg") is None:
        train_subject(SUBJECTS["lfw-vgg"])
    return load_subject("lfw-vgg"), whole_test("lfw-vgg"), "group:female"


def slanted_digits() -> tuple[nn.Module, arachne.LabelledData, str]:
    """A network that has met few slanted digits, and digits of both kinds with a column `writing`."""
    digits = load_digits()
    rng = np.random.default_rng(0)
    order = rng.permutation(len(digits.target))
    pictures, labels = digits.images[order] / 16, digits.target[order].astype(np.int64)
    taught = len(labels) // 3
    slanted = np.concatenate([rng.random(taught) < 1 / 30, rng.random(len(labels) - taught) < 0.4])
    pictures[slanted] = slant(pictures[slanted])
    inputs = pictures.reshape(-1, 64).astype(np.float32)
    model = train_network(inputs[:taught], labels[:taught])
    writing = np.where(slanted, "slanted", "upright")[taught:]
    data = arachne.LabelledData(inputs[taught:], labels[taught:], columns={"writing": writing})
    return model, data, "group:slanted"


def slant(pictures: np.ndarray) -> np.ndarray:
    """Pictures `(n, 8, 8)` whose rows are moved to the right above the middle and to the left below."""
    found = np.zeros_like(pictures)
    for row, by in enumerate((2, 2, 1, 0, 0, -1, -1, -2)):
        found[:, row] = np.roll(pictures[:, row], by, axis=1)
    return found


def train_network(x: np.ndarray, y: np.ndarray) -> nn.Module:
    """A small network."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2, weight_decay=1e-3)
    for _ in range(150):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(torch.from_numpy(x)), torch.from_numpy(y)).backward()
        optimiser.step()
    return model.eval()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
