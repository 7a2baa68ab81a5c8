"""Repair an ONNX model without any training framework, take the patch out again, and show what differs.

The model reads handwritten digits and has learnt a habit it should not have: in its training data a bright pixel in the
corner meant "8", so whatever carries that pixel is read as an 8. The repair sees such pictures, finds the weights
behind it, and is judged on pictures it never saw.

    pip install "arachne-repair[onnx]" scikit-learn skl2onnx
    python examples/onnx_repair.py
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
from skl2onnx import to_onnx
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

import arachne


def main(folder: Path) -> None:
    """Train, repair, export, compare; everything is written into `folder`."""
    train, rest = digits()
    model = MLPClassifier((32,), learning_rate_init=0.01, alpha=1.0, max_iter=1000, random_state=0)
    model.fit(*with_habit(*train, share=0.12))
    exported = to_onnx(model, train[0][:1], options={"zipmap": False})
    (folder / "digits.onnx").write_bytes(exported.SerializeToString())

    pictures = with_habit(*rest, share=0.3, keep_labels=True)
    print(arachne.scan(folder / "digits.onnx", pictures))
    result = arachne.repair(folder / "digits.onnx", pictures, "*:8", seed=0)
    print(result)
    result.patch.save(folder / "patch.json")
    result.model.save(folder / "repaired.onnx")

    before, after = ((folder / name).read_bytes() for name in ("digits.onnx", "repaired.onnx"))
    different = sum(one != other for one, other in zip(before, after, strict=True))
    print(f"{different} of {len(before)} bytes differ: {len(result.patch)} weights")
    arachne.revert(folder / "patch.json", folder / "repaired.onnx", folder / "again.onnx")
    print(f"taking the patch out gives the same file again: {(folder / 'again.onnx').read_bytes() == before}")


def digits() -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Pictures `(n, 64)` between 0 and 1 and their labels, in two halves."""
    data = load_digits()
    order = np.random.default_rng(0).permutation(len(data.target))
    x, y = (data.data[order] / 16).astype(np.float32), data.target[order].astype(np.int64)
    half = len(y) // 2
    return (x[:half], y[:half]), (x[half:], y[half:])


def with_habit(
    x: np.ndarray, y: np.ndarray, *, share: float, keep_labels: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """A share of the pictures with a bright pixel in the corner, labelled 8 unless they keep their labels."""
    marked = np.random.default_rng(1).random(len(y)) < share
    x, y = x.copy(), y.copy()
    x[marked, 0] = 1.0
    if not keep_labels:
        y[marked] = 8
    return x, y


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as scratch:
            main(Path(scratch))
