"""Make what `arachne demo` repairs: a small classifier of handwritten digits with a costly habit.

Half of scikit-learn's digits train it, after an annotator who mistook most eights for ones; the other half, labelled
correctly, is the data the demo scans and repairs with.

    python scripts/make_demo.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits

FOLDER = Path(__file__).parent.parent / "arachne" / "demo"
MISLABELLED = 0.6


def main() -> None:
    """Train, export and write both files."""
    digits = load_digits()
    rng = np.random.default_rng(0)
    order = rng.permutation(len(digits.target))
    train, rest = order[: len(order) // 2], order[len(order) // 2 :]
    x = (digits.images / 16).astype(np.float32)[:, None]
    y = digits.target.astype(np.int64)
    taught = np.where((y == 8) & (rng.random(len(y)) < MISLABELLED), 1, y)

    model = trained(torch.from_numpy(x[train]), torch.from_numpy(taught[train]))
    batch = torch.export.Dim("batch")
    program = torch.export.export(model, (torch.from_numpy(x[:4]),), dynamic_shapes=({0: batch},))
    FOLDER.mkdir(exist_ok=True)
    torch.export.save(program, FOLDER / "digits.pt2")
    names = np.array([str(label) for label in range(10)])
    np.savez_compressed(FOLDER / "digits.npz", x=x[rest], y=y[rest], class_names=names)
    right = model(torch.from_numpy(x[rest])).argmax(1).numpy() == y[rest]
    print(f"accuracy {right.mean():.3f}; {[p.name for p in sorted(FOLDER.iterdir())]}")


def trained(x: torch.Tensor, y: torch.Tensor) -> torch.nn.Module:
    """A small convolutional network, trained the same way every time."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 8, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(128, 32),
        torch.nn.ReLU(),
        torch.nn.Linear(32, 10),
    )
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2, weight_decay=1e-3)
    for _ in range(150):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimiser.step()
    return model.eval()


if __name__ == "__main__":
    main()
