"""The conformance suite on this backend: network specs as TFLite files, made table by table. It needs pytest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import flatbuffers
import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from arachne.model.values import Array
from arachne.testing import BackendConformance, Network, UnsupportedNetworkError, nodes
from arachne.testing.checks.suite import MakeBackend
from arachne_tflite import TfliteBackend
from arachne_tflite.schema import DTYPES, OPERATORS, OPTIONS
from arachne_tflite.translate import TO_CHANNELS_FIRST, TO_PLAIN

NUMBERS = {dtype: number for number, dtype in DTYPES.items()}
OPTION_NUMBERS = {name: number for number, name in OPTIONS.items()}

PLAIN: dict[type[nodes.Node], str] = {
    nodes.Relu: "RELU",
    nodes.Tanh: "TANH",
    nodes.Sigmoid: "LOGISTIC",
    nodes.Softmax: "SOFTMAX",
    nodes.Add: "ADD",
}

VALID = 1


class TfliteConformance(BackendConformance):
    """The suite, for `arachne backends --check tflite` and for our own tests."""

    UNSUPPORTED = {  # noqa: RUF012
        "conv1d": "TFLite writes it as a convolution over two axes",
        "conv3d": "usual TFLite models have none",
        "conv_transpose": "TFLite writes it as one over two axes",
        "conv_transpose2d": "TFLite has none with groups and dilation",
        "batch_norm": "converters fold it into the layer before it",
        "layer_norm": "converters write it as sums and products",
        "lstm": "TFLite keeps a tensor for each gate",
        "lstm_one_bias": "TFLite keeps a tensor for each gate",
        "lstm_two_biases": "TFLite keeps a tensor for each gate",
        "gru": "TFLite has none",
    }

    @pytest.fixture
    def make_backend(self) -> MakeBackend:
        """The backend under test."""
        return build


def build(network: Network) -> TfliteBackend:
    """The network of a spec, with exactly its weights."""
    return TfliteBackend.load(file_of(network))


class FileWriter:
    """Writes tensors and operators of a TFLite file; also for tests that need a file of their own."""

    def __init__(self) -> None:
        self.model = schema.ModelT()
        self.model.version = 3
        self.graph = schema.SubGraphT()
        self.graph.tensors, self.graph.operators = [], []
        self.model.subgraphs, self.model.operatorCodes = [self.graph], []
        self.model.buffers = [schema.BufferT()]
        self.codes: dict[str, int] = {}

    def tensor(
        self, name: str, shape: Sequence[int], dtype: str = "float32", values: Array | None = None, **grid: Any
    ) -> int:
        """Add a tensor, stored if it has values; `scale`, `zero` and `axis` make it a quantised one."""
        made = schema.TensorT()
        made.name, made.shape, made.type, made.buffer = name, np.array(shape, np.int32), NUMBERS[dtype], 0
        if values is not None:
            buffer = schema.BufferT()
            buffer.data = np.frombuffer(np.ascontiguousarray(values, dtype).tobytes(), np.uint8)
            made.buffer = len(self.model.buffers)
            self.model.buffers.append(buffer)
        if grid:
            told = schema.QuantizationParametersT()
            told.scale, told.zeroPoint = np.atleast_1d(np.float32(grid["scale"])), np.atleast_1d(np.int64(grid["zero"]))
            told.quantizedDimension = grid.get("axis", 0)
            made.quantization = told
        self.graph.tensors.append(made)
        return len(self.graph.tensors) - 1

    def operator(
        self, name: str, inputs: Sequence[int], outputs: Sequence[int], kind: str = "", **options: Any
    ) -> None:
        """Add an operator, with options of a kind."""
        if name not in self.codes:
            code = schema.OperatorCodeT()
            code.builtinCode = OPERATORS.index(name)
            code.deprecatedBuiltinCode, code.version = min(code.builtinCode, 127), 1
            self.codes[name] = len(self.model.operatorCodes)
            self.model.operatorCodes.append(code)
        made = schema.OperatorT()
        made.opcodeIndex = self.codes[name]
        made.inputs, made.outputs = np.array(inputs, np.int32), np.array(outputs, np.int32)
        if kind:
            table = getattr(schema, f"{kind}T")()
            for option, value in options.items():
                setattr(table, option, value)
            made.builtinOptionsType, made.builtinOptions = OPTION_NUMBERS[kind], table
        self.graph.operators.append(made)

    def content(self, inputs: Sequence[int], outputs: Sequence[int]) -> bytes:
        """Return the bytes of the file."""
        self.graph.inputs, self.graph.outputs = np.array(inputs, np.int32), np.array(outputs, np.int32)
        builder = flatbuffers.Builder(1024)
        builder.Finish(self.model.Pack(builder), b"TFL3")
        return bytes(builder.Output())


class Writer(FileWriter):
    """Writes a spec's nodes and weights; every tensor is as the spec has it, with channels first."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network
        self.known: dict[str, int] = {}
        self.shapes: dict[int, tuple[int, ...]] = {}
        self.stored: dict[str, int] = {}
        for name, shape in network.inputs.items():
            self.known[name] = self._tensor(name, (1, *shape), "int32" if network.rows_read(name) else "float32")
        for node in network.nodes:
            self.known[node.name] = self._write(node)

    def _tensor(self, name: str, shape: Sequence[int], dtype: str = "float32", values: Array | None = None) -> int:
        index = self.tensor(name, shape, dtype, values)
        self.shapes[index] = tuple(shape)
        return index

    def _store(self, name: str, values: Array, dtype: str = "float32") -> int:
        if name not in self.stored:
            self.stored[name] = self._tensor(name, values.shape, dtype, values)
        return self.stored[name]

    def _write(self, node: nodes.Node) -> int:
        layer, sources = self.network.layer_of(node), [self.known[name] for name in node.sources]
        shape = self.shapes[sources[0]]
        if layer is not None:
            return self._layer(layer, node, sources[0])
        match node:
            case nodes.Concat():
                axes = sum(self.shapes[source][1] for source in sources)
                return self._add(
                    "CONCATENATION", sources, node.name, (1, axes, *shape[2:]), "ConcatenationOptions", axis=1
                )
            case nodes.MaxPool() | nodes.AveragePool():
                return self._pool(node, sources[0])
            case nodes.Flatten():
                flat = (1, math.prod(shape[1:]))
                wanted = self._store(f"{node.name}/shape", np.array([-1, flat[1]]), "int32")
                return self._add("RESHAPE", [*sources, wanted], node.name, flat)
            case nodes.Softmax():
                return self._add("SOFTMAX", sources, node.name, shape, "SoftmaxOptions", beta=1.0)
            case nodes.Add():
                return self._add("ADD", sources, node.name, shape, "AddOptions")
        return self._add(PLAIN[type(node)], sources, node.name, shape)

    def _layer(self, layer: nodes.Layer, node: nodes.Node, source: int) -> int:
        shape = self.shapes[source]
        match layer:
            case nodes.Dense():
                given = [source, *(self._store(f"{layer.name}/{name}", v) for name, v in layer.parameters.items())]
                size = (*shape[:-1], len(layer.weight))
                return self._add(
                    "FULLY_CONNECTED", given, node.name, size, "FullyConnectedOptions", keepNumDims=len(shape) > 2
                )
            case nodes.Embedding():
                table = self._store(f"{layer.name}/weight", layer.weight)
                size = (*shape, layer.weight.shape[1])
                return self._add("GATHER", [table, source], node.name, size, "GatherOptions", axis=0)
            case nodes.Conv() if len(shape) == 4:
                return self._conv(layer, node, source)
        raise UnsupportedNetworkError(f"no TFLite operator for a '{type(layer).__name__}'")

    def _conv(self, layer: nodes.Conv, node: nodes.Node, source: int) -> int:
        walk = layer.geometry
        source = self._transpose(source, TO_PLAIN, f"{node.name}/last")
        shape = self.shapes[source]
        if any(map(any, walk.padding)):
            pads = np.array([(0, 0), *walk.padding, (0, 0)])
            shape = tuple(size + before + behind for size, (before, behind) in zip(shape, pads.tolist(), strict=True))
            given = [source, self._store(f"{node.name}/pads", pads, "int32")]
            source = self._add("PAD", given, f"{node.name}/padded", shape, "PadOptions")
        depthwise = walk.groups == shape[3] > 1
        weight = layer.weight.transpose((1, 2, 3, 0) if depthwise else TO_PLAIN)
        given = [source, self._store(f"{layer.name}/weight", weight)]
        if layer.bias is not None:
            given.append(self._store(f"{layer.name}/bias", layer.bias))
        sizes = [
            (size - (width - 1) * dilation - 1) // stride + 1
            for size, width, stride, dilation in zip(
                shape[1:3], layer.weight.shape[2:], walk.stride, walk.dilation, strict=True
            )
        ]
        size = (1, *sizes, len(layer.weight))
        options: dict[str, Any] = {"padding": VALID, "strideH": walk.stride[0], "strideW": walk.stride[1]}
        options |= {"dilationHFactor": walk.dilation[0], "dilationWFactor": walk.dilation[1]}
        name, kind = ("DEPTHWISE_CONV_2D", "DepthwiseConv2DOptions") if depthwise else ("CONV_2D", "Conv2DOptions")
        if depthwise:
            options["depthMultiplier"] = len(layer.weight) // shape[3]
        made = self._add(name, given, f"{node.name}/filtered", size, kind, **options)
        return self._transpose(made, TO_CHANNELS_FIRST, node.name)

    def _pool(self, node: nodes.MaxPool | nodes.AveragePool, source: int) -> int:
        if len(node.size) != 2:
            raise UnsupportedNetworkError("TFLite pools over two axes")
        source = self._transpose(source, TO_PLAIN, f"{node.name}/last")
        shape, stride = self.shapes[source], node.stride or node.size
        sizes = [(size - width) // step + 1 for size, width, step in zip(shape[1:3], node.size, stride, strict=True)]
        kind = "MAX_POOL_2D" if isinstance(node, nodes.MaxPool) else "AVERAGE_POOL_2D"
        options = {"padding": VALID, "strideH": stride[0], "strideW": stride[1]}
        options |= {"filterHeight": node.size[0], "filterWidth": node.size[1]}
        made = self._add(kind, [source], f"{node.name}/pooled", (1, *sizes, shape[3]), "Pool2DOptions", **options)
        return self._transpose(made, TO_CHANNELS_FIRST, node.name)

    def _transpose(self, source: int, axes: Sequence[int], name: str) -> int:
        shape = tuple(self.shapes[source][axis] for axis in axes)
        given = [source, self._store(f"axes{axes}", np.array(axes), "int32")]
        return self._add("TRANSPOSE", given, name, shape, "TransposeOptions")

    def _add(
        self, operator: str, inputs: Sequence[int], name: str, shape: Sequence[int], kind: str = "", **options: Any
    ) -> int:
        output = self._tensor(name, shape)
        self.operator(operator, inputs, [output], kind, **options)
        return output


def file_of(network: Network) -> bytes:
    """The network as a file, with weights called `layer/weight` and `layer/bias`."""
    written = Writer(network)
    inputs = [written.known[name] for name in network.inputs]
    return written.content(inputs, [written.known[network.nodes[-1].name]])
