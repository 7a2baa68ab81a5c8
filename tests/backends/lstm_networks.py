"""One network with an LSTM, the same weights in every framework; each is imported when its function is called.

Weights are given in the canonical layout, gates i, f, g, o. PyTorch stores them so; ONNX wants i, o, f, g and a second
bias, Keras matrices the other way round and no second bias.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from arachne.model.backend import ModelBackend
from arachne.model.values import Array

STEPS, WIDTH, UNITS, CLASSES = 7, 3, 6, 4


def weights() -> dict[str, Array]:
    """Large enough that the classes are told apart."""
    rng = np.random.default_rng(7)
    shapes = {
        "weight_ih": (4 * UNITS, WIDTH),
        "weight_hh": (4 * UNITS, UNITS),
        "bias_ih": (4 * UNITS,),
        "weight": (CLASSES, UNITS),
        "bias": (CLASSES,),
    }
    return {name: (0.8 * rng.normal(size=shape)).astype(np.float32) for name, shape in shapes.items()}


def in_keras() -> ModelBackend:
    """A sequential model."""
    from arachne_keras import KerasBackend  # isort: skip  # before Keras: it settles what Keras runs on
    import keras
    from keras import layers as kl

    w = weights()
    model = keras.Sequential([keras.Input((STEPS, WIDTH)), kl.LSTM(UNITS), kl.Dense(CLASSES)])
    model.set_weights([w["weight_ih"].T, w["weight_hh"].T, w["bias_ih"], w["weight"].T, w["bias"]])
    return KerasBackend.load(model)


def in_torch() -> ModelBackend:
    """A module whose LSTM has a second bias, of zeros."""
    import torch
    from torch import nn

    from arachne_torch import TorchBackend

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm, self.head = nn.LSTM(WIDTH, UNITS, batch_first=True), nn.Linear(UNITS, CLASSES)

        def forward(self, inputs: Any) -> Any:
            return self.head(self.lstm(inputs)[0][:, -1])

    w, net = weights(), Net().eval()
    stored = {f"lstm.{name}_l0": w[name] for name in ("weight_ih", "weight_hh", "bias_ih")}
    stored |= {"lstm.bias_hh_l0": np.zeros_like(w["bias_ih"]), "head.weight": w["weight"], "head.bias": w["bias"]}
    net.load_state_dict({name: torch.from_numpy(values) for name, values in stored.items()})
    backend = TorchBackend.load(net)
    backend.forward(np.zeros((1, STEPS, WIDTH), np.float32))  # only a run tells the order of the layers
    return backend


def in_onnx() -> ModelBackend:
    """A graph written by hand: no exporter had a say in the order of its gates."""
    from onnx import TensorProto, helper, numpy_helper

    from arachne_onnx import OnnxBackend

    w = weights()
    stored = {"w": w["weight_ih"], "r": w["weight_hh"], "b": w["bias_ih"]}
    stored = {name: reorder_gates(values)[None] for name, values in stored.items()}
    stored["b"] = np.concatenate([stored["b"], np.zeros_like(stored["b"])], axis=1)
    stored |= {"head.weight": w["weight"], "head.bias": w["bias"], "axis": np.array([0])}
    nodes = [
        helper.make_node("Transpose", ["input"], ["steps"], perm=[1, 0, 2]),
        helper.make_node("LSTM", ["steps", "w", "r", "b"], ["", "last"], hidden_size=UNITS, name="lstm"),
        helper.make_node("Squeeze", ["last", "axis"], ["state"]),
        helper.make_node("Gemm", ["state", "head.weight", "head.bias"], ["scores"], transB=1),
    ]
    taken = helper.make_tensor_value_info("input", TensorProto.FLOAT, ["n", STEPS, WIDTH])
    given = helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", CLASSES])
    initialisers = [numpy_helper.from_array(values, name) for name, values in stored.items()]
    graph = helper.make_graph(nodes, "network", [taken], [given], initialisers)
    return OnnxBackend.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10))


def reorder_gates(values: Array) -> Array:
    """Gates i, f, g, o as i, o, f, g."""
    i, f, g, o = np.split(values, 4)
    return np.concatenate([i, o, f, g])


IN = {"keras": in_keras, "torch": in_torch, "onnx": in_onnx}
