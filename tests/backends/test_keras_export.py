"""A Keras model and its ONNX export give the same scores."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("arachne_keras", exc_type=ImportError)
pytest.importorskip("onnxruntime")

from arachne_keras import KerasBackend  # isort: skip  # before Keras: it settles what Keras runs on
import keras
import onnxruntime
from keras import layers as kl

from arachne.errors import ModelError
from arachne.model.values import Array, Inputs

pytestmark = pytest.mark.backend("keras")
if keras.backend.backend() == "tensorflow":
    pytest.importorskip("tf2onnx")
else:
    pytest.importorskip("onnxscript")


def convnet() -> Any:
    return keras.Sequential(
        [
            keras.Input((8, 7, 2), name="image"),
            kl.Conv2D(4, 3, strides=2, padding="same", activation="relu", name="conv"),
            kl.DepthwiseConv2D(3, name="each"),
            kl.BatchNormalization(),
            kl.Flatten(),
            kl.Dense(3, activation="softmax", name="head"),
        ]
    )


def reader() -> Any:
    layers = [kl.Embedding(9, 4, name="table"), kl.LSTM(5, name="lstm"), kl.Dense(3, activation="softmax", name="head")]
    return keras.Sequential([keras.Input((6,), dtype="int32", name="words"), *layers])


def two_inputs() -> Any:
    image, facts = keras.Input((4, 4, 1), name="image"), keras.Input((3,), name="facts")
    joined = kl.Concatenate()([kl.Flatten()(kl.Conv2D(2, 3)(image)), kl.Dense(4)(facts)])
    return keras.Model({"image": image, "facts": facts}, kl.Dense(3)(joined))


def run(path: Path, inputs: Inputs) -> Array:
    session = onnxruntime.InferenceSession(path)
    named = dict(inputs) if isinstance(inputs, dict) else {session.get_inputs()[0].name: inputs}
    return np.asarray(session.run(None, named)[0])


@pytest.mark.parametrize("make", [convnet, reader, two_inputs], ids=["convnet", "reader", "two inputs"])
def test_an_export_gives_the_models_scores(make: Callable[[], Any], tmp_path: Path) -> None:
    keras.utils.set_random_seed(0)
    backend = KerasBackend.load(make())
    layer = backend.layers[-1].name
    backend.set_weights(layer, "bias", np.array([0.5, -0.25, 0.125], np.float32))
    path = tmp_path / "model.onnx"
    backend.export_onnx(path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.onnx"]
    inputs = backend.example_inputs(5)
    scores, given = backend.forward(inputs), run(path, inputs)
    if np.allclose(given.sum(axis=1), 1, atol=1e-4):
        scores = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(given, scores, rtol=1e-4, atol=1e-5)


class Own(keras.Model):  # type: ignore[misc]  # Keras is untyped
    def __init__(self) -> None:
        super().__init__()
        self.head = kl.Dense(3, name="head")

    def call(self, inputs: Any) -> Any:
        return self.head(inputs)


def test_a_model_that_does_not_tell_its_inputs_is_not_exported(tmp_path: Path) -> None:
    model = Own()
    model(np.zeros((1, 4), np.float32))
    with pytest.raises(ModelError, match="a call of its own"):
        KerasBackend.load(model).export_onnx(tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []
