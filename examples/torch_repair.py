"""Repair a PyTorch model, export it to ONNX, take the patch there, and show that both agree.

The model reads handwritten digits and has learnt a habit it should not have: in its training data a bright pixel in the
corner meant "8", so whatever carries that pixel is read as an 8. The repair sees such pictures, finds the weights
behind it, and is judged on pictures it never saw.

    pip install "arachne-repair[torch,onnx,convert]" scikit-learn
    python examples/torch_repair.py
"""

from __future__ import annotations

import sys
import tempfile
from collections import OrderedDict
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

import arachne
from arachne_torch import TorchBackend


def main(folder: Path) -> None:
    """Train, repair, export, compare; everything is written into `folder`."""
    train, rest = digits()
    model = train_network(*with_habit(*train, share=0.12))
    batch = ({0: torch.export.Dim("batch")},)
    program = torch.export.export(model, (torch.from_numpy(train[0][:2]),), dynamic_shapes=batch)
    torch.export.save(program, folder / "digits.pt2")

    pictures = with_habit(*rest, share=0.3, keep_labels=True)
    print(arachne.scan(folder / "digits.pt2", pictures))
    result = arachne.repair(folder / "digits.pt2", pictures, "*:8", seed=0)
    print(result)
    result.patch.save(folder / "patch.json")
    result.model.save(folder / "repaired.pt2")

    repaired = TorchBackend.load(folder / "repaired.pt2")
    TorchBackend.load(folder / "digits.pt2").export_onnx(folder / "digits.onnx", inputs=pictures[0][:2])
    arachne.apply(folder / "patch.json", folder / "digits.onnx", folder / "repaired.onnx")
    exported = arachne.load(folder / "repaired.onnx")
    difference = float(np.abs(repaired.forward(pictures[0]) - exported.forward(pictures[0])).max())
    same = float(np.mean(repaired.predict(pictures[0]) == exported.predict(pictures[0])))
    print(f"PyTorch and ONNX agree on {same:.2%} of the pictures; their scores differ by at most {difference:.1e}")


def train_network(x: np.ndarray, y: np.ndarray) -> nn.Module:
    """A small network."""
    torch.manual_seed(0)
    torch.set_num_threads(1)  # so small a network is only slowed down by more
    layers = OrderedDict(flatten=nn.Flatten(), hidden=nn.Linear(64, 32), relu=nn.ReLU(), classes=nn.Linear(32, 10))
    model = nn.Sequential(layers)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2, weight_decay=1e-2)
    for _ in range(150):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(torch.from_numpy(x)), torch.from_numpy(y)).backward()
        optimiser.step()
    return model.eval()


def digits() -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Pictures `(n, 1, 8, 8)` between 0 and 1 and their labels, in two halves."""
    data = load_digits()
    order = np.random.default_rng(0).permutation(len(data.target))
    x, y = (data.images[order, None] / 16).astype(np.float32), data.target[order].astype(np.int64)
    half = len(y) // 2
    return (x[:half], y[:half]), (x[half:], y[half:])


def with_habit(
    x: np.ndarray, y: np.ndarray, *, share: float, keep_labels: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """A share of the pictures with a bright pixel in the corner, labelled 8 unless they keep their labels."""
    marked = np.random.default_rng(1).random(len(y)) < share
    x, y = x.copy(), y.copy()
    x[marked, :, 0, 0] = 1.0
    if not keep_labels:
        y[marked] = 8
    return x, y


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as scratch:
            main(Path(scratch))
