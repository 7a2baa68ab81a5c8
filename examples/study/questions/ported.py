"""The dense network for Fashion-MNIST through other backends, with the same weights."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

import arachne
from arachne.errors import UsageError

Both = list[arachne.LabelledData]


def port_network(backend: arachne.ModelBackend, name: str, both: Both) -> tuple[arachne.ModelBackend, Both]:
    """Open a network by another backend, and return the halves as that takes them."""
    return _open_model(backend, name), both


@lru_cache(maxsize=1)
def _open_model(backend: arachne.ModelBackend, name: str) -> arachne.ModelBackend:
    made = {"onnx": _onnx, "keras": _keras}
    if name not in made:
        raise UsageError(f"expected one of the backends torch, {', '.join(made)}, got '{name}'")
    return made[name](backend)


def _onnx(backend: arachne.ModelBackend) -> arachne.ModelBackend:
    """Written as a graph of two matrix products."""
    from onnx import TensorProto, helper, numpy_helper, save

    layers = _layers(backend)
    nodes, constants, value = [helper.make_node("Flatten", ["input"], ["flat"])], [], "flat"
    for number, (layer, weight, bias) in enumerate(layers):
        constants += [
            numpy_helper.from_array(weight, f"{layer}.weight"),
            numpy_helper.from_array(bias, f"{layer}.bias"),
        ]
        out = "scores" if number == len(layers) - 1 else f"{layer}_out"
        nodes.append(helper.make_node("Gemm", [value, f"{layer}.weight", f"{layer}.bias"], [out], name=layer, transB=1))
        value = out
        if number < len(layers) - 1:
            nodes.append(helper.make_node("Relu", [out], [f"{layer}_relu"]))
            value = f"{layer}_relu"
    given = helper.make_tensor_value_info("input", TensorProto.FLOAT, ["n", 1, 28, 28])
    scores = helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", len(layers[-1][2])])
    graph = helper.make_graph(nodes, "study", [given], [scores], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        save(model, str(path))
        return arachne.load(path)


def _keras(backend: arachne.ModelBackend) -> arachne.ModelBackend:
    """Written as two dense layers; one channel, so that its pictures are flattened in the same order."""
    import keras

    layers = _layers(backend)
    start = keras.Input((1, 28, 28))
    value: Any = keras.layers.Flatten()(start)
    made = []
    for number, (layer, _, bias) in enumerate(layers):
        dense = keras.layers.Dense(len(bias), None if number == len(layers) - 1 else "relu", name=layer)
        value = dense(value)
        made.append(dense)
    for dense, (_, weight, bias) in zip(made, layers, strict=True):
        dense.set_weights([weight.T, bias])
    return arachne.load(keras.Model(start, value))


def _layers(backend: arachne.ModelBackend) -> Sequence[tuple[str, np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    found = []
    for info in backend.layers:
        own = backend.get_weights(info.name)
        found.append((info.name, np.asarray(own["weight"]), np.asarray(own["bias"])))
    return found
