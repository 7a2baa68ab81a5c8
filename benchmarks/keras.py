"""Ratios of the Keras backend, all measured in one run: gradients against a tape, candidates against `predict`.

    python -m benchmarks.keras            everything, about a minute
    python -m benchmarks.keras gradients  only one of: gradients, candidates

Both sides of a ratio run in turns and take the least of a few repetitions. Times are the processor's, so that other
programs on the machine do not count; one processor is used, so that they are what a person waits for.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from arachne_keras import KerasBackend  # isort: skip  # before Keras: it settles what Keras runs on
import keras
import tensorflow as tf
from keras import layers as kl

from arachne.decisions.losses import cross_entropy
from arachne.model.values import Array
from benchmarks.timing import least


def mlp() -> Any:
    """The paper's network for Fashion-MNIST."""
    hidden, head = kl.Dense(100, activation="relu", name="hidden"), kl.Dense(10, activation="softmax", name="head")
    return keras.Sequential([keras.Input((784,)), hidden, head])


def cnn() -> Any:
    """Two convolutions and two dense layers on 28 × 28."""
    layers = [
        kl.Conv2D(16, 5, padding="same", activation="relu"),
        kl.MaxPooling2D(),
        kl.Conv2D(32, 5, padding="same", activation="relu"),
        kl.MaxPooling2D(),
        kl.Flatten(),
        kl.Dense(64, activation="relu"),
        kl.Dense(10, activation="softmax"),
    ]
    return keras.Sequential([keras.Input((28, 28, 1)), *layers])


def lstm() -> Any:
    """A recurrent layer over 28 rows."""
    return keras.Sequential([keras.Input((28, 28)), kl.LSTM(64), kl.Dense(10, activation="softmax")])


SUBJECTS: dict[str, tuple[Callable[[], Any], tuple[int, ...], int]] = {
    "MLP": (mlp, (784,), 1024),
    "CNN": (cnn, (28, 28, 1), 128),
    "LSTM": (lstm, (28, 28), 256),
}
"""Network, shape of one input, inputs per gradient."""


def main(parts: list[str]) -> None:
    """Print one line per ratio."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    keras.utils.set_random_seed(0)
    for name, part in {"gradients": gradients, "candidates": candidates}.items():
        if not parts or name in parts:
            part()


def gradients() -> None:
    """The gradient of all weights, one batch."""
    rng = np.random.default_rng(0)
    for name, (make, shape, n) in SUBJECTS.items():
        model = make()
        x, y = rng.normal(size=(n, *shape)).astype(np.float32), np.arange(n) % 10
        backend = KerasBackend.load(model)
        a, b = least(partial(backend.weight_gradients, x, cross_entropy(y)), partial(by_tape, model, x, y))
        print(f"gradient of all weights, {name}, {n} inputs: {a * 1e3:.1f} ms, {a / b:.2f} x a plain tape (at most 2)")


def by_tape(model: Any, x: Array, y: Array) -> object:
    """Take the gradient as anybody would."""
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(keras.losses.sparse_categorical_crossentropy(y, model(x, training=False)))
    return [gradient.numpy() for gradient in tape.gradient(loss, model.trainable_variables)]


def candidates() -> None:
    """A candidate that touches one layer, against setting all weights and predicting."""
    model, n = mlp(), 5000
    x = np.random.default_rng(0).normal(size=(n, 784)).astype(np.float32)
    backend = KerasBackend.load(model)
    for layer in ("hidden", "head"):
        weights = {(layer, "weight"): backend.get_weights(layer)["weight"]}
        cut = backend.cut(x, [layer])
        for batch, words in ((32, "batches of 32, Keras' own choice"), (n, "one batch")):
            a, b = least(partial(cut.scores_with, weights), partial(predict_whole, model, x, batch))
            goal = "at least 20" if batch == 32 else "no goal"
            print(f"candidate at '{layer}', {n} inputs: {a * 1e3:.2f} ms, {b / a:.0f} x faster than {words} ({goal})")


def predict_whole(model: Any, x: Array, batch: int) -> object:
    """Run a candidate without a cut."""
    model.set_weights(model.get_weights())
    return model.predict(x, batch_size=batch, verbose=0)


if __name__ == "__main__":
    main(sys.argv[1:])
