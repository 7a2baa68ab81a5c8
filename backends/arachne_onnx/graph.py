"""A normalised graph of nodes and arrays, used by the layers, the gradients and the cut.

onnx-ir 1.1 has such a graph too. Its import takes 0.30 s of processor time where `onnx` takes 0.15, and it opens the
demo's model in 0.42 ms where `onnx` takes 0.04.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from arachne.model.values import Array

IR_VERSION = 10
"""Written into every model we make: the newest `onnx` writes versions the newest `onnxruntime` refuses."""

SCORES = "arachne/scores/"
"""Prefix of the names of tensors that turn a model's output into class scores."""

MAX_MESSAGE_BYTES = (1 << 31) - (1 << 24)
"""Bytes of constants in one message, which holds 2 GB; beyond that, large constants are passed beside it."""

FREE_SIZE = -1
"""The size that Paddle's exporter writes for one that is left free."""

LARGE_TENSOR_BYTES = 1 << 20
"""The size in bytes from which a tensor is passed beside the message."""

WHOLE = {TensorProto.INT8: "int8", TensorProto.UINT8: "uint8"}
"""Element types of inputs and outputs that a quantised file may have, with their names."""

FLOATS = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE})


@dataclass(frozen=True)
class TensorType:
    """The element type and shape of a tensor; unknown sizes are None or names."""

    element: int
    shape: tuple[int | str | None, ...] | None = None

    @property
    def rank(self) -> int | None:
        """Number of axes, where known."""
        return None if self.shape is None else len(self.shape)

    @property
    def is_float(self) -> bool:
        """Whether a gradient can flow through such a tensor."""
        return self.element in FLOATS


@dataclass
class Graph:
    """Nodes in order of execution, with their constants as arrays.

    Attributes:
        nodes: Every node, in topological order.
        constants: Initialisers by name, in the layout and dtype of the file.
        inputs: The types of the inputs, by name.
        opsets: Version of each operator set, by domain.
        types: Types found by static inference or by a run, by tensor.
        scores: The tensor that holds the class scores.
        as_written: The nodes of the file that compute scores, one input at a time, where `nodes` are only near them.
        whole_inputs: Scale and zero point of the inputs that the file takes as whole numbers, and `nodes` as values.
    """

    nodes: list[NodeProto]
    constants: dict[str, Array]
    inputs: dict[str, TensorType]
    opsets: dict[str, int]
    types: dict[str, TensorType] = field(default_factory=dict)
    scores: str = ""
    as_written: list[NodeProto] | None = None
    whole_inputs: dict[str, tuple[Array, Array]] = field(default_factory=dict)

    def type_of(self, name: str) -> TensorType | None:
        """Element type and shape of a tensor, where known."""
        if name in self.constants:
            value = self.constants[name]
            return TensorType(helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        return self.types.get(name) or self.inputs.get(name)

    def producers(self) -> dict[str, NodeProto]:
        """The node behind every computed tensor."""
        return {output: node for node in self.nodes for output in node.output if output}

    def takers(self) -> dict[str, list[NodeProto]]:
        """The nodes that take every tensor as an input; what their bodies read is left out."""
        found: dict[str, list[NodeProto]] = {}
        for node in self.nodes:
            for name in node.input:
                found.setdefault(name, []).append(node)
        return found

    def fresh(self, stem: str) -> str:
        """A tensor name that is not taken."""
        taken = self._used_names()
        number = 0
        while f"{stem}_{number}" in taken:
            number += 1
        return f"{stem}_{number}"

    def _used_names(self) -> set[str]:
        names = set(self.constants) | set(self.inputs)
        for node in self.nodes:
            names.update(node.output)
            names.update(node.input)
        return names

    def select_nodes(self, outputs: Iterable[str], available: Collection[str] = ()) -> list[NodeProto]:
        """Select the nodes that compute `outputs` from `available` tensors, inputs and constants, in order."""
        wanted = set(outputs) - set(available)
        kept = []
        for node in reversed(self.nodes):
            if wanted.isdisjoint(node.output):
                continue
            kept.append(node)
            wanted.update(name for name in reads(node) if name not in available)
        return kept[::-1]

    def model(
        self,
        nodes: Iterable[NodeProto],
        inputs: Mapping[str, TensorType],
        outputs: Iterable[str],
        constants: Mapping[str, Array] | None = None,
    ) -> ModelProto:
        """Build a model of these nodes; constants that are not inputs become initialisers."""
        nodes = list(nodes)
        outputs = list(outputs)
        known = self.constants if constants is None else {**self.constants, **constants}
        read = {name for node in nodes for name in reads(node)} | set(outputs)
        wanted = [name for name in sorted(read) if name in known and name not in inputs]
        whole = sum(known[name].nbytes for name in wanted) <= MAX_MESSAGE_BYTES
        tensors = [
            tensor(name, known[name])
            if whole or known[name].nbytes < LARGE_TENSOR_BYTES
            else external_tensor(name, known[name])
            for name in wanted
        ]
        graph = helper.make_graph(
            nodes,
            "arachne",
            [value_info(name, kind) for name, kind in inputs.items()],
            [ValueInfoProto(name=name) for name in outputs],
            tensors,
        )
        imports = [helper.make_opsetid(domain, version) for domain, version in self.opsets.items()]
        return helper.make_model(graph, opset_imports=imports, ir_version=IR_VERSION)


def reads(node: NodeProto) -> set[str]:
    """Every tensor a node reads, also from inside its subgraphs."""
    names = {name for name in node.input if name}
    for subgraph in subgraphs(node):
        names |= captures(subgraph)
    return names


def captures(graph: GraphProto) -> set[str]:
    """Return the outer tensors that a subgraph reads."""
    own = {value.name for value in graph.input} | {value.name for value in graph.initializer}
    free: set[str] = set()
    for node in graph.node:
        free |= reads(node) - own
        own.update(node.output)
    return free | ({value.name for value in graph.output} - own)


def subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    """The bodies a Loop, Scan or If carries."""
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g
        elif attribute.type == AttributeProto.GRAPHS:
            yield from attribute.graphs


def copy_node(node: NodeProto) -> NodeProto:
    """Copy a node."""
    copy = NodeProto()
    copy.CopyFrom(node)
    return copy


def attributes(node: NodeProto) -> dict[str, Any]:
    """A node's attributes as Python values; text is decoded."""
    values = {}
    for attribute in node.attribute:
        value = helper.get_attribute_value(attribute)
        values[attribute.name] = value.decode() if isinstance(value, bytes) else value
    return values


def tensor(name: str, value: Array) -> TensorProto:
    """An array as an initialiser."""
    return numpy_helper.from_array(np.ascontiguousarray(value).reshape(np.shape(value)), name)


def external_tensor(name: str, value: Array) -> TensorProto:
    """Return an initialiser whose numbers are passed beside the message, without a file."""
    made = TensorProto(name=name, dims=value.shape, data_type=helper.np_dtype_to_tensor_dtype(value.dtype))
    made.data_location = TensorProto.EXTERNAL
    made.external_data.add(key="location", value="arachne-has-it")
    return made


def value_info(name: str, kind: TensorType) -> ValueInfoProto:
    """A graph input or output with its type."""
    return helper.make_tensor_value_info(name, kind.element, None if kind.shape is None else list(kind.shape))


def type_from(info: ValueInfoProto) -> TensorType | None:
    """The type in a graph's input, output or value info; None for sequences, maps and missing types."""
    if info.type.WhichOneof("value") != "tensor_type" or not info.type.tensor_type.elem_type:
        return None
    kind = info.type.tensor_type
    if not kind.HasField("shape"):
        return TensorType(kind.elem_type)
    return TensorType(kind.elem_type, tuple(_dimension(dimension) for dimension in kind.shape.dim))


def _dimension(dimension: Any) -> int | str | None:
    match dimension.WhichOneof("value"):
        case "dim_value":
            return None if dimension.dim_value == FREE_SIZE else int(dimension.dim_value)
        case "dim_param":
            return str(dimension.dim_param) or None
    return None


def infer_types(graph: Graph) -> None:
    """Fill `graph.types` by static inference where it succeeds; large weights are replaced by inputs of their shape."""
    large = {name: kind for name in graph.constants if (kind := _large_weight_type(graph, name)) is not None}
    model = graph.model(graph.nodes, {**graph.inputs, **large}, [graph.scores] if graph.scores else [])
    try:
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
    except onnx.shape_inference.InferenceError:  # what is wrong with the model, the runtime says better
        return
    for info in (*inferred.graph.value_info, *inferred.graph.output):
        kind = type_from(info)
        if kind is not None:
            graph.types[info.name] = kind


def _large_weight_type(graph: Graph, name: str) -> TensorType | None:
    kind = graph.type_of(name)
    return kind if kind is not None and kind.is_float and graph.constants[name].size > 256 else None
