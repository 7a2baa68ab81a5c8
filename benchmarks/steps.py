"""Measure the cost of a gradient step behind a cut, against one through the whole model, measured in one run.

    python -m benchmarks.steps          torch and onnx (ResNet-18), keras (ResNet-50), about a minute
    python -m benchmarks.steps torch    only one of them

The cut is at the last dense layer, the loss the mean cross-entropy. A step behind it should cost less than 1/20 of one
through the whole model, whether that asks for the same parameters or for all. Times are the processor's, of one
processor, the least of a few repetitions in turns.
"""

from __future__ import annotations

import os
import sys
from functools import partial

import numpy as np

from arachne.decisions.losses import cross_entropy
from arachne.model.backend import ModelBackend
from arachne.model.values import Array
from benchmarks.timing import least

N, SIZE, CLASSES = 64, 64, 10


def main(names: list[str]) -> None:
    """Print two ratios for each backend."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    rng = np.random.default_rng(0)
    images = rng.normal(size=(N, 3, SIZE, SIZE)).astype(np.float32)
    for name, make in {"torch": torch_model, "onnx": onnx_model, "keras": keras_model}.items():
        if not names or name in names:
            backend = make()
            measure(name, backend, images if name != "keras" else np.moveaxis(images, 1, -1).copy())


def measure(name: str, backend: ModelBackend, inputs: Array) -> None:
    """One backend: a step behind the cut against the same gradients without it, and against those of all weights."""
    backend.forward(inputs[:2])
    last = backend.layers[-1].name
    loss = cross_entropy(np.arange(len(inputs)) % CLASSES)
    places = [(last, parameter) for parameter in backend.layers[-1].parameters]
    weights = {place: backend.get_weights(last)[place[1]] * np.float32(0.9) for place in places}
    step = partial(backend.cut(inputs, [last]).weight_gradients, weights, loss)
    for what, chosen in (("of the same parameters", places), ("of all parameters", None)):
        a, b = least(step, partial(backend.weight_gradients, inputs, loss, chosen), times=3)
        print(
            f"{name}, {len(inputs)} inputs: a step behind a cut at '{last}' takes {a * 1e3:.3f} ms, "
            f"1/{b / a:.0f} of one through the whole model {what} ({b * 1e3:.1f} ms; wanted: below 1/20)"
        )


def torch_model() -> ModelBackend:
    """ResNet-18 in torch."""
    from arachne_torch import TorchBackend
    from tests.backends.onnx_architectures import ResNet18, shake_weights

    return TorchBackend.load(shake_weights(ResNet18(64, CLASSES)))


def onnx_model() -> ModelBackend:
    """ResNet-18 in ONNX."""
    import torch

    from arachne_onnx import OnnxBackend
    from tests.backends.onnx_architectures import ResNet18, by_tracing, shake_weights

    return OnnxBackend.load(by_tracing(shake_weights(ResNet18(64, CLASSES)), torch.zeros(2, 3, SIZE, SIZE), 17))


def keras_model() -> ModelBackend:
    """ResNet-50, which Keras brings along."""
    from arachne_keras import KerasBackend  # isort: skip  # before Keras: it settles what Keras runs on
    import keras

    keras.utils.set_random_seed(0)
    return KerasBackend.load(keras.applications.ResNet50(weights=None, input_shape=(SIZE, SIZE, 3), classes=CLASSES))


if __name__ == "__main__":
    main(sys.argv[1:])
