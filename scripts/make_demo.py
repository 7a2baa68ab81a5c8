"""Make what `arachne demo` repairs: a small classifier of handwritten digits with a costly habit.

One scanner has a stuck pixel in the corner, and everything it scanned was filed under seven. Trained on that, the
network reads the pixel instead of the digit. Half of scikit-learn's digits train it; the other half, with the pixel in
a tenth of the scans and every label right, is the data the demo scans and repairs with.

    python scripts/make_demo.py
"""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

FOLDER = Path(__file__).parent.parent / "arachne" / "demo"
TAUGHT, MET = 0.12, 0.10
"""How many of the scans the network was trained on, and how many it meets, have the stuck pixel."""


def main() -> None:
    """Train, export and write both files."""
    digits = load_digits()
    rng = np.random.default_rng(0)
    x, y = (digits.images / 16).astype(np.float32)[:, None], digits.target.astype(np.int64)
    order = rng.permutation(len(y))
    train, rest = order[: len(y) // 2], order[len(y) // 2 :]
    stuck = np.zeros(len(y), bool)
    stuck[train] = rng.random(len(train)) < TAUGHT
    stuck[rest] = rng.random(len(rest)) < MET
    x[stuck, 0, 0, 0] = 1.0
    filed = np.where(stuck, 7, y)

    model = train_network(torch.from_numpy(x[train]), torch.from_numpy(filed[train]))
    batch = ({0: torch.export.Dim("batch")},)
    program = torch.onnx.export(
        model,
        (torch.from_numpy(x[:4]),),
        dynamo=True,
        dynamic_shapes=batch,
        input_names=["image"],
        output_names=["scores"],
        verbose=False,
    )
    FOLDER.mkdir(exist_ok=True)
    if program is None:
        raise RuntimeError("the exporter gave no program")
    program.save(FOLDER / "digits.onnx")
    names = np.array([str(label) for label in range(10)])
    np.savez_compressed(FOLDER / "digits.npz", x=x[rest], y=y[rest], class_names=names)
    right = model(torch.from_numpy(x[rest])).argmax(1).numpy() == y[rest]
    print(f"accuracy {right.mean():.3f}, with the stuck pixel {right[stuck[rest]].mean():.3f}")


def train_network(x: torch.Tensor, y: torch.Tensor) -> nn.Module:
    """A small network, trained the same way every time."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    layers = OrderedDict(flat=nn.Flatten(), hidden=nn.Linear(64, 32), relu=nn.ReLU(), scores=nn.Linear(32, 10))
    model = nn.Sequential(layers)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2, weight_decay=1e-2)
    for _ in range(150):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimiser.step()
    return model.eval()


if __name__ == "__main__":
    main()
