"""The conformance suite on this backend: network specs as ONNX models, made node by node. It needs pytest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from arachne.model.values import Array
from arachne.testing import BackendConformance, Network, UnsupportedNetworkError, nodes
from arachne.testing.checks.suite import MakeBackend
from arachne_onnx import OnnxBackend

OPSET, IR_VERSION = 18, 10

GATES: dict[type[nodes.Layer], tuple[int, ...]] = {nodes.Lstm: (0, 3, 1, 2), nodes.Gru: (1, 0, 2)}
"""Which canonical gate (i f g o, r z n) stands at each position of ONNX's order (i o f g, z r n)."""

PLAIN: dict[type[nodes.Node], str] = {
    nodes.Relu: "Relu",
    nodes.Tanh: "Tanh",
    nodes.Sigmoid: "Sigmoid",
    nodes.Softmax: "Softmax",
    nodes.Flatten: "Flatten",
    nodes.Add: "Sum",
}


class OnnxConformance(BackendConformance):
    """The suite, for `arachne backends --check onnx` and for our own tests."""

    UNSUPPORTED = {"lstm_one_bias": "ONNX stores two biases or none"}  # noqa: RUF012

    @pytest.fixture
    def make_backend(self) -> MakeBackend:
        """The backend under test."""
        return build


def build(network: Network) -> OnnxBackend:
    """The network of a spec, with exactly its weights."""
    return OnnxBackend.load(model_of(network))


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
            more = 1 if isinstance(node, nodes.Embedding) else 0
            self.ranks[node.name] = 2 if isinstance(node, nodes.Flatten) else self.ranks[node.sources[0]] + more

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
        source, names = node.sources[0], self._store(layer, layer.parameters)
        match layer:
            case nodes.Conv() | nodes.ConvTranspose():
                walk = layer.geometry
                pads = [pair[side] for side in (0, 1) for pair in walk.padding]
                options = {"strides": walk.stride, "pads": pads, "dilations": walk.dilation, "group": walk.groups}
                self._add(type(layer).__name__, [source, *names], node.name, **options)
            case nodes.Embedding():
                self._add("Gather", [*names, source], node.name)
            case nodes.BatchNorm():
                names += self._store(layer, {"mean": layer.mean, "variance": layer.variance})
                self._add("BatchNormalization", [source, *names], node.name, epsilon=layer.epsilon)
            case nodes.LayerNorm():
                self._add("LayerNormalization", [source, *names], node.name, axis=-1, epsilon=layer.epsilon)
            case nodes.Recurrent():
                self._recurrent(layer, node)
            case nodes.Dense() if self.ranks[source] == 2:
                self._add("Gemm", [source, *names], node.name, transB=1)
            case nodes.Dense():  # a product over steps, with the matrix stored the other way round
                self._store(layer, {"weight": layer.weight.T})
                product = node.name if layer.bias is None else f"{node.name}_product"
                self._add("MatMul", [source, names[0]], product)
                if layer.bias is not None:
                    self._add("Add", [product, names[1]], node.name)
            case _:
                raise UnsupportedNetworkError(f"no ONNX operator for a '{type(layer).__name__}'")

    def _recurrent(self, layer: nodes.Recurrent, node: nodes.Node) -> None:
        """ONNX wants steps first, one direction of several, the gates in another order and both biases in one."""
        for parameter in layer.parameters:
            del self.weights[f"{layer.name}.{parameter}"]
        order = GATES[type(layer)]
        stored = {name: reorder_gates(values, order)[None] for name, values in layer.parameters.items()}
        tensors = {"W": stored["weight_ih"], "R": stored["weight_hh"]}
        if layer.bias_ih is not None:
            tensors["B"] = np.concatenate([stored["bias_ih"], stored["bias_hh"]], axis=1)
        steps, states = f"{node.name}_steps", f"{node.name}_states"
        self.weights["direction"] = np.array([1])
        self._add("Transpose", [node.sources[0]], steps, perm=[1, 0, 2])
        options = {"linear_before_reset": 1} if isinstance(layer, nodes.Gru) else {}
        names = self._store(layer, tensors)
        self._add(type(layer).__name__.upper(), [steps, *names], states, hidden_size=layer.units, **options)
        self._add("Squeeze", [states, "direction"], f"{states}_forward")
        self._add("Transpose", [f"{states}_forward"], node.name, perm=[1, 0, 2])

    def _store(self, layer: nodes.Layer, tensors: Mapping[str, Array]) -> list[str]:
        """Keep tensors of a layer as initialisers; their names."""
        stored = {f"{layer.name}.{name}": values.astype(self.dtype) for name, values in tensors.items()}
        self.weights.update(stored)
        return list(stored)

    def _add(self, operator: str, inputs: list[str], output: str, **options: object) -> None:
        self.nodes.append(helper.make_node(operator, inputs, [output], **options))


def reorder_gates(values: Array, order: Sequence[int]) -> Array:
    """Reorder the gates of a recurrent layer's parameter."""
    gates = np.split(values, len(order))
    return np.concatenate([gates[gate] for gate in order])


def model_of(
    network: Network, *, dtype: type[np.floating] = np.float32, batch: int | str = "n", opset: int = OPSET
) -> ModelProto:
    """The network as a message, with weights as initialisers called `layer.weight` and `layer.bias`."""
    written = Writer(network, dtype)
    element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64 if network.rows_read(name) else element, [batch, *shape])
        for name, shape in network.inputs.items()
    ]
    output = helper.make_tensor_value_info(network.nodes[-1].name, element, [batch, None])
    weights = [numpy_helper.from_array(array, name) for name, array in written.weights.items()]
    graph = helper.make_graph(written.nodes, "network", inputs, [output], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=IR_VERSION)
