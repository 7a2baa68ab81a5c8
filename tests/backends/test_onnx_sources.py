"""Exports from other tools: scikit-learn's, and Keras models by tf2onnx and by Keras itself."""

from __future__ import annotations

import logging
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arachne.decisions.losses import cross_entropy
from arachne.model.values import Array
from arachne_onnx import OnnxBackend

pytestmark = pytest.mark.backend("onnx")


def loss(backend: OnnxBackend, inputs: Array, labels: Array) -> float:
    """The mean cross-entropy of the backend's own scores."""
    scores = backend.forward(inputs).astype(np.float64)
    scores -= scores.max(axis=1, keepdims=True)
    return float(np.mean(np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(len(labels)), labels]))


def check_gradients(backend: OnnxBackend, inputs: Array, labels: Array, step: float = 3e-3) -> list[str]:
    """Hold every gradient against a finite difference of the loss; the kinds of the layers, for the test to compare.

    A ReLU or a maximum that changes sides within the step shows as a large error in one direction only, so of two
    random directions the better counts.
    """
    gradients = backend.weight_gradients(inputs, cross_entropy(labels))
    rng = np.random.default_rng(0)
    for info in backend.layers:
        for parameter in info.parameters:
            gradient = gradients[info.name, parameter]
            weight = backend.get_weights(info.name)[parameter]
            errors = []
            for _ in range(2):
                direction = rng.normal(size=weight.shape)
                direction /= np.linalg.norm(direction)
                values = []
                for sign in (1, -1):
                    backend.set_weights(info.name, parameter, (weight + sign * step * direction).astype(weight.dtype))
                    values.append(loss(backend, inputs, labels))
                backend.set_weights(info.name, parameter, weight)
                difference = (values[0] - values[1]) / (2 * step) - float(np.sum(gradient * direction))
                errors.append(abs(difference) / (float(np.linalg.norm(gradient)) + 1e-3))
            assert min(errors) < 2e-2, (info.name, parameter)
    return [info.kind for info in backend.layers]


@pytest.mark.parametrize("zipmap", [True, False])
@pytest.mark.parametrize("classes", [2, 3])
def test_scikit_learns_networks_are_repaired_behind_labels_and_probabilities(classes: int, zipmap: bool) -> None:
    from skl2onnx import to_onnx
    from sklearn.neural_network import MLPClassifier

    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 5)).astype(np.float32)
    y = np.digitize(x[:, 0], [-0.4, 0.4][: classes - 1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        network = MLPClassifier((7, 6), activation="tanh", max_iter=40, random_state=0).fit(x, y)
        model = to_onnx(network, x[:1], options={id(network): {"zipmap": zipmap}})
    backend = OnnxBackend.load(model)
    assert backend.class_names == tuple(str(label) for label in range(classes))
    np.testing.assert_array_equal(backend.predict(x), network.predict(x))
    scores = backend.forward(x).astype(np.float64)
    probabilities = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(probabilities, network.predict_proba(x), atol=1e-5)
    np.testing.assert_allclose(backend.get_weights(backend.layers[0].name)["weight"], network.coefs_[0].T, atol=1e-6)
    assert check_gradients(backend, x[:30], y[:30]) == ["dense"] * 3


@pytest.fixture(scope="module")
def keras() -> Any:
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    keras = pytest.importorskip("keras")
    pytest.importorskip("tf2onnx")
    if keras.backend.backend() != "tensorflow":
        pytest.skip("tf2onnx takes Keras models that run on tensorflow")
    return keras


def export_model(keras: Any, model: Any, how: str, folder: Path) -> OnnxBackend:
    """A Keras model with weights that are not trivial, as a file."""
    rng = np.random.default_rng(0)
    model(np.zeros((1, *model.inputs[0].shape[1:]), model.inputs[0].dtype))  # the exporter insists on one call
    model.set_weights([weight + 0.2 * np.abs(rng.normal(size=weight.shape)) for weight in model.get_weights()])
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if how == "keras":
                model.export(str(folder / "model.onnx"), format="onnx", verbose=False)
                return OnnxBackend.load(folder / "model.onnx")
            import tensorflow as tf
            import tf2onnx

            shape, dtype = model.inputs[0].shape, model.inputs[0].dtype
            signature = [tf.TensorSpec(shape, dtype, name="input")]
            traced = tf.function(lambda x: model(x, training=False))
            return OnnxBackend.load(tf2onnx.convert.from_function(traced, input_signature=signature, opset=15)[0])
    finally:
        logging.disable(logging.NOTSET)


@pytest.mark.parametrize("how", ["keras", "tf2onnx"])
def test_channels_last_networks_of_keras_are_taken(keras: Any, how: str, tmp_path: Path) -> None:
    layers = keras.layers
    model = keras.Sequential(
        [
            layers.Input((9, 8, 3)),
            layers.Conv2D(6, 3, padding="same", strides=2, activation="tanh"),
            layers.DepthwiseConv2D(3, padding="same"),
            layers.BatchNormalization(),
            layers.Activation("elu"),
            layers.AveragePooling2D(2, padding="same"),
            layers.Flatten(),
            layers.Dense(4, activation="softmax"),
        ]
    )
    backend = export_model(keras, model, how, tmp_path)
    x = np.random.default_rng(1).normal(size=(6, 9, 8, 3)).astype(np.float32)
    scores = backend.forward(x).astype(np.float64)
    probabilities = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(probabilities, model(x, training=False).numpy(), atol=1e-5)
    kernel = next(w for w in model.get_weights() if w.shape == (3, 3, 3, 6))
    np.testing.assert_allclose(backend.get_weights(backend.layers[0].name)["weight"], kernel.transpose(3, 2, 0, 1))
    kinds = check_gradients(backend, x, np.arange(6) % 4)
    assert [kind for kind in kinds if kind != "norm"] == ["conv", "conv", "dense"]


def test_gradients_pass_the_loops_that_keras_makes_of_a_gru(keras: Any, tmp_path: Path) -> None:
    layers = keras.layers
    model = keras.Sequential(
        [
            layers.Input((6,), dtype="int32"),
            layers.Embedding(12, 5),
            layers.LSTM(4, return_sequences=True),
            layers.GRU(3),
            layers.Dense(3, activation="softmax"),
        ]
    )
    backend = export_model(keras, model, "tf2onnx", tmp_path)
    x = np.random.default_rng(1).integers(0, 12, (5, 6)).astype(np.int32)
    scores = backend.forward(x).astype(np.float64)
    probabilities = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(probabilities, model(x, training=False).numpy(), atol=1e-5)
    kinds = check_gradients(backend, x, np.arange(5) % 3)
    assert kinds == ["embedding", "recurrent", "dense", "dense", "dense"]  # the loop of the GRU holds two
