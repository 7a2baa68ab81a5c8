"""Repair a Keras model, export it to ONNX, and show that both agree.

The model reads handwritten digits and has a habit it should not have: in its training data a bright pixel in the corner
meant "8", so whatever carries that pixel is read as an 8. The repair sees such pictures, finds the weights behind it,
and is judged on pictures it never saw.

    pip install "arachne-repair[keras-cpu,onnx,convert]" scikit-learn
    python examples/keras_repair.py
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

import arachne
from arachne_keras import KerasBackend  # before Keras: it settles what Keras runs on

import keras  # isort: skip


def main(folder: Path) -> None:
    """Train, repair, export, compare; everything is written into `folder`."""
    train, rest = digits()
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Conv2D(8, 3, activation="relu", name="conv"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(32, activation="relu", name="hidden"),
            keras.layers.Dense(10, activation="softmax", name="classes"),
        ]
    )
    model.compile("adam", "sparse_categorical_crossentropy")
    model.fit(*with_habit(*train, share=0.12), epochs=40, batch_size=32, verbose=0)
    model.save(folder / "digits.keras")

    pictures = with_habit(*rest, share=0.3, keep_labels=True)
    print(arachne.scan(folder / "digits.keras", pictures))
    result = arachne.repair(folder / "digits.keras", pictures, "*:8", seed=0)
    print(result)
    result.patch.save(folder / "patch.json")
    result.model.save(folder / "repaired.keras")

    repaired = KerasBackend.load(folder / "repaired.keras")
    repaired.export_onnx(folder / "repaired.onnx")
    exported = arachne.load(folder / "repaired.onnx")
    difference = float(np.abs(repaired.forward(pictures[0]) - exported.forward(pictures[0])).max())
    same = float(np.mean(repaired.predict(pictures[0]) == exported.predict(pictures[0])))
    print(f"Keras and ONNX agree on {same:.2%} of the pictures; their scores differ by at most {difference:.1e}")


def digits() -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Pictures `(n, 8, 8, 1)` between 0 and 1 and their labels, in two halves."""
    data = load_digits()
    order = np.random.default_rng(0).permutation(len(data.target))
    x, y = (data.images[order, :, :, None] / 16).astype(np.float32), data.target[order].astype(np.int64)
    half = len(y) // 2
    return (x[:half], y[:half]), (x[half:], y[half:])


def with_habit(
    x: np.ndarray, y: np.ndarray, *, share: float, keep_labels: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """A share of the pictures with a bright pixel in the corner, labelled 8 unless they keep their labels."""
    marked = np.random.default_rng(1).random(len(y)) < share
    x, y = x.copy(), y.copy()
    x[marked, 0, 0] = 1.0
    if not keep_labels:
        y[marked] = 8
    return x, y


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as scratch:
            main(Path(scratch))
