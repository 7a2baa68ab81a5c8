"""Train a small convolutional network that has seen few nines, and write its weights and data: something to repair.

python digits.py     makes digits.msgpack and digits.npz in the current folder; `digits:make` makes the network
"""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np
import optax
from arachne_flax import FlaxBackend
from flax import nnx


class Digits(nnx.Module):
    """Two convolutions and two dense layers on images `(n, 8, 8, 1)`."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.conv1 = nnx.Conv(1, 8, (3, 3), rngs=rngs)
        self.conv2 = nnx.Conv(8, 16, (3, 3), strides=(2, 2), rngs=rngs)
        self.hidden = nnx.Linear(4 * 4 * 16, 32, rngs=rngs)
        self.scores = nnx.Linear(32, 10, rngs=rngs)

    def __call__(self, images: jax.Array) -> jax.Array:
        """Class scores `(n, 10)`."""
        values = nnx.relu(self.conv2(nnx.relu(self.conv1(images))))
        return self.scores(nnx.relu(self.hidden(values.reshape(len(values), -1))))


def make() -> Digits:
    """The network, untrained; Arachne gives it the weights of a file."""
    return Digits(nnx.Rngs(0))


@nnx.jit
def train(model: Digits, optimiser: nnx.Optimizer, images: jax.Array, labels: jax.Array) -> None:
    """One step on one batch."""

    def loss(model: Digits) -> jax.Array:
        return optax.softmax_cross_entropy_with_integer_labels(model(images), labels).mean()

    optimiser.update(model, nnx.grad(loss)(model))


def main() -> None:
    """Train it on the first 800 digits."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images, labels = (digits.images[..., None] / 16).astype(np.float32), digits.target
    seen = np.arange(len(labels)) < 800
    rows = np.flatnonzero(seen & ((labels != 9) | (np.arange(len(labels)) < 60)))
    model, rng = make(), np.random.default_rng(0)
    optimiser = nnx.Optimizer(model, optax.adam(3e-3), wrt=nnx.Param)
    for _ in range(400):
        batch = rng.choice(rows, 64)
        train(model, optimiser, images[batch], labels[batch])
    backend = FlaxBackend(model)
    backend.save(Path("digits.msgpack"))
    np.savez("digits.npz", x=images[~seen], y=labels[~seen])
    print(f"digits.msgpack is right on {np.mean(backend.predict(images[~seen]) == labels[~seen]):.1%} of digits.npz")


if __name__ == "__main__":
    main()
