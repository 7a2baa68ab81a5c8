"""Network specs as ONNX models, made node by node: no training framework is needed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from arachne.testing import Network, nodes
from arachne.values import Array
from arachne_onnx import OnnxBackend

OPSET, IR_VERSION = 18, 10

PLAIN: dict[type[nodes.Node], str] = {
    nodes.Relu: "Relu",
    nodes.Tanh: "Tanh",
    nodes.Sigmoid: "Sigmoid",
    nodes.Softmax: "Softmax",
    nodes.Flatten: "Flatten",
    nodes.Add: "Sum",
}


def build(network: Network) -> OnnxBackend:
    """A backend that holds the network."""
    return OnnxBackend.load(model_of(network))


def reload(path: Path, network: Network) -> OnnxBackend:
    """The backend of a saved file."""
    return OnnxBackend.load(path)


class Writer:
    """Writes a spec's nodes and weights."""

    def __init__(self, network: Network, dtype: type[np.floating]) -> None:
        self.network = network
        self.dtype = dtype
        self.ranks = {name: len(shape) + 1 for name, shape in network.inputs.items()}
        self.nodes: list[NodeProto] = []
        self.weights: dict[str, Array] = {}
        for node in network.nodes:
            self._write(node)
            self.ranks[node.name] = 2 if isinstance(node, nodes.Flatten) else self.ranks[node.sources[0]]

    def _write(self, node: nodes.Node) -> None:
        layer, sources = self.network.layer_of(node), list(node.sources)
        if layer is not None:
            self._layer(layer, node)
        elif isinstance(node, nodes.Concat):
            self._add("Concat", sources, node.name, axis=1)
        elif isinstance(node, (nodes.MaxPool, nodes.AveragePool)):
            operator = "MaxPool" if isinstance(node, nodes.MaxPool) else "AveragePool"
            self._add(operator, sources, node.name, kernel_shape=node.size, strides=node.stride or node.size)
        elif isinstance(node, nodes.Flatten):
            self._add("Flatten", sources, node.name, axis=1)
        else:
            self._add(PLAIN[type(node)], sources, node.name)

    def _layer(self, layer: nodes.Layer, node: nodes.Node) -> None:
        weight, bias = f"{layer.name}.weight", f"{layer.name}.bias"
        names = [weight, bias] if layer.bias is not None else [weight]
        stored = layer.weight
        if isinstance(layer, nodes.Conv):
            walk = layer.geometry
            pads = [pair[side] for side in (0, 1) for pair in walk.padding]
            options = {"strides": walk.stride, "pads": pads, "dilations": walk.dilation, "group": walk.groups}
            self._add("Conv", [node.sources[0], *names], node.name, **options)
        elif self.ranks[node.sources[0]] == 2:
            self._add("Gemm", [node.sources[0], *names], node.name, transB=1)
        else:  # a product over steps, with the matrix stored the other way round
            stored = stored.T
            product = node.name if layer.bias is None else f"{node.name}_product"
            self._add("MatMul", [node.sources[0], weight], product)
            if layer.bias is not None:
                self._add("Add", [product, bias], node.name)
        self.weights[weight] = stored.astype(self.dtype)
        if layer.bias is not None:
            self.weights[bias] = layer.bias.astype(self.dtype)

    def _add(self, operator: str, inputs: list[str], output: str, **options: object) -> None:
        self.nodes.append(helper.make_node(operator, inputs, [output], **options))


def model_of(
    network: Network, *, dtype: type[np.floating] = np.float32, batch: int | str = "n", opset: int = OPSET
) -> ModelProto:
    """The network as a message, with weights as initialisers called `layer.weight` and `layer.bias`."""
    written = Writer(network, dtype)
    element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    inputs = [helper.make_tensor_value_info(name, element, [batch, *shape]) for name, shape in network.inputs.items()]
    output = helper.make_tensor_value_info(network.nodes[-1].name, element, [batch, None])
    weights = [numpy_helper.from_array(array, name) for name, array in written.weights.items()]
    graph = helper.make_graph(written.nodes, "network", inputs, [output], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=IR_VERSION)


def numbers(*shape: int, seed: int = 0) -> Array:
    """Normally distributed."""
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def built(
    nodes: Sequence[NodeProto],
    weights: dict[str, Array],
    *,
    inputs: dict[str, tuple[Any, ...]] | None = None,
    outputs: Sequence[str] = ("y",),
    opset: int = 18,
    element: int = TensorProto.FLOAT,
    ir_version: int = 8,
) -> ModelProto:
    """A model of these nodes; inputs are float `x` `(n, 4)` unless told."""
    given = inputs or {"x": ("n", 4)}
    graph = helper.make_graph(
        list(nodes),
        "made",
        [helper.make_tensor_value_info(name, element, list(shape)) for name, shape in given.items()],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version)
