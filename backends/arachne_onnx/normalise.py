"""From any ONNX model to a graph that can be analysed; the user's model stays as it is.

`normalise` puts a copy's nodes in order, brings it to opset 18 or newer, writes out local functions and branches that
are always taken, and makes `Constant` nodes initialisers. The result computes exactly what the model computes, and
forward passes and cuts run it. `differentiable` prepares it for gradients: half precision becomes single,
operators without a rule that are made of others are written out, recurrent layers become a Scan, automatic padding
becomes numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import count

import numpy as np
import onnx
import onnx.inliner
import onnx.version_converter
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from arachne.errors import ModelError
from arachne.io.reading import error_text
from arachne.model.values import Array
from arachne_onnx.fused import write_out_fused
from arachne_onnx.graph import (
    FREE_SIZE,
    IR_VERSION,
    WHOLE,
    Graph,
    TensorType,
    attributes,
    copy_node,
    infer_types,
    subgraphs,
    type_from,
    value_info,
)
from arachne_onnx.grids import dequantise_weights, write_roundings_plainly
from arachne_onnx.order import sort_nodes, take_constant_branches
from arachne_onnx.rules import FLAT, RULES
from arachne_onnx.rules.recurrent import GATES, can_unfold, unfold
from arachne_onnx.rules.tape import key
from arachne_onnx.unrolling import unroll

OPSET = 18
"""The oldest operator set that the rules support; older models are converted to it."""

OWN_NAME = "ai.onnx"
"""The name of the domain of ONNX' own operators, which exporters leave out and scikit-learn pipelines may spell out."""

WHOLE_PRODUCTS = ("QGemm", "MatMulInteger", "ConvInteger", "DynamicQuantizeLSTM")
"""Operators on whole numbers, beside those whose names begin with `QLinear`."""

HALVES = (TensorProto.FLOAT16, TensorProto.BFLOAT16)


def normalise(model: ModelProto, outside: Mapping[str, Array] | None = None) -> Graph:
    """The graph of a model, for analysis.

    Args:
        model: The model.
        outside: The values of initialisers that are not in the message, by name.

    Raises:
        ModelError: A model of an opset that cannot be brought up to date.
    """
    copy = ModelProto()
    copy.CopyFrom(model)
    _leave_out_own_name(copy)
    _free_sizes(copy.graph)
    sort_nodes(copy.graph)
    if copy.functions:
        copy = onnx.inliner.inline_local_functions(copy, True)
    version = _opset(copy)
    # Before IR version 4 every initialiser had to be an input too; the converter insists on it, exporters did not.
    copy.ir_version = max(copy.ir_version, IR_VERSION)
    if version < OPSET:
        try:
            copy = onnx.version_converter.convert_version(copy, OPSET)
        except Exception as error:  # the converter raises whatever its adapters raise
            raise ModelError(
                f"the model's opset {version} cannot be brought to {OPSET}: {error_text(error)}"
            ) from error
    graph = _graph(copy, outside)
    _write_out_whole_numbers(graph)
    write_roundings_plainly(graph)
    if any(value.type.tensor_type.elem_type in WHOLE for value in (*copy.graph.input, *copy.graph.output)):
        from arachne_onnx.whole_ends import write_ends_in_floats

        write_ends_in_floats(graph, [value.name for value in copy.graph.output])
    infer_types(graph)
    write_out_fused(graph)
    take_constant_branches(graph)
    unroll(graph)
    return graph


def _write_out_whole_numbers(graph: Graph) -> None:
    """Write operators on whole numbers as float operators; what knows them is imported where there are some."""
    if any(node.op_type in WHOLE_PRODUCTS or node.op_type.startswith("QLinear") for node in graph.nodes):
        from arachne_onnx.dynamic import write_out_dynamic
        from arachne_onnx.qoperators import write_out_qoperators

        write_out_qoperators(graph)
        write_out_dynamic(graph)


def differentiable(graph: Graph) -> Graph:
    """A copy of a graph in which every gradient that can be taken is taken by a rule."""
    copy = Graph(
        [copy_node(node) for node in graph.nodes],
        dict(graph.constants),
        dict(graph.inputs),
        dict(graph.opsets),
        dict(graph.types),
        graph.scores,
    )
    _write_out_functions(copy)
    dequantise_weights(copy)
    _to_single(copy)
    _unfold_recurrent(copy)
    infer_types(copy)
    make_padding_explicit(copy)
    return copy


def learn_types(graph: Graph, runs: Sequence[Mapping[str, Array]]) -> None:
    """Take ranks and sizes from runs of the model on batches of different sizes, where static inference gave up.

    A size that differs between the runs gets a name made of its values: equal names are equal sizes.
    """
    for name, first in runs[0].items():
        known = graph.types.get(name)
        if known is not None and known.shape is not None and all(isinstance(size, int) for size in known.shape):
            continue
        shapes = [run[name].shape for run in runs]
        if len({len(shape) for shape in shapes}) > 1:
            continue
        shape = tuple(
            axis[0] if len(set(axis)) == 1 else "_".join(map(str, axis)) for axis in zip(*shapes, strict=True)
        )
        graph.types[name] = TensorType(helper.np_dtype_to_tensor_dtype(first.dtype), shape)


def _free_sizes(graph: GraphProto) -> None:
    """Leave sizes out that an exporter wrote as -1, which tools of ONNX take for a number."""
    for value in (*graph.input, *graph.output, *graph.value_info):
        for size in value.type.tensor_type.shape.dim:
            if size.HasField("dim_value") and size.dim_value == FREE_SIZE:
                size.ClearField("dim_value")


def _leave_out_own_name(model: ModelProto) -> None:
    """Drop the domain name of ONNX' own operators, which is optional and not supported everywhere."""
    for function in model.functions:
        _rename_domain(function.node)
    _rename_domain(model.graph.node)
    for imports in (model.opset_import, *(function.opset_import for function in model.functions)):
        versions: dict[str, int] = {}
        for entry in imports:
            domain = "" if entry.domain == OWN_NAME else entry.domain
            versions[domain] = max(entry.version, versions.get(domain, 0))
        del imports[:]
        imports.extend(helper.make_opsetid(domain, version) for domain, version in versions.items())


def _rename_domain(nodes: Iterable[NodeProto]) -> None:
    for node in nodes:
        if node.domain == OWN_NAME:
            node.domain = ""
        for body in subgraphs(node):
            _rename_domain(body.node)


def _opset(model: ModelProto) -> int:
    return max((entry.version for entry in model.opset_import if not entry.domain), default=OPSET)


def _graph(model: ModelProto, outside: Mapping[str, Array] | None = None) -> Graph:
    """Nodes and arrays of a model; constants of bodies move to the outside."""
    known = outside or {}
    constants = {
        value.name: known[value.name] if value.name in known else numpy_helper.to_array(value)
        for value in model.graph.initializer
    }
    for sparse in model.graph.sparse_initializer:
        raise ModelError(
            f"the model's weight '{sparse.values.name}' is stored as a sparse tensor, expected a dense one"
        )
    inputs = {}
    for value in model.graph.input:
        kind = type_from(value)
        if value.name not in constants and kind is not None:
            inputs[value.name] = kind
    nodes: list[NodeProto] = []
    for node in model.graph.node:
        value = constant_value(node)
        if value is not None:
            constants[node.output[0]] = value
            continue
        nodes.append(copy_node(node))
        for body in subgraphs(nodes[-1]):
            _hoist(body, constants)
    opsets = {entry.domain: entry.version for entry in model.opset_import}
    opsets.setdefault("", OPSET)
    types = {info.name: kind for info in model.graph.value_info if (kind := type_from(info)) is not None}
    return Graph(nodes, constants, inputs, opsets, types)


def _hoist(body: GraphProto, constants: dict[str, Array]) -> None:
    """Move the weights of a body outside, where they can be addressed; it reads them from there."""
    for value in body.initializer:
        if value.name not in constants:
            constants[value.name] = numpy_helper.to_array(value)
    kept = [
        value for value in body.initializer if not np.array_equal(constants[value.name], numpy_helper.to_array(value))
    ]
    del body.initializer[:]
    body.initializer.extend(kept)
    nodes = []
    for node in body.node:
        value = constant_value(node)
        if value is not None and node.output[0] not in constants:
            constants[node.output[0]] = value
            continue
        nodes.append(copy_node(node))
        for inner in subgraphs(nodes[-1]):
            _hoist(inner, constants)
    del body.node[:]
    body.node.extend(nodes)


def constant_value(node: NodeProto) -> Array | None:
    """Return the value of a `Constant` node; None for other nodes, and for strings and sparse tensors."""
    if node.op_type != "Constant" or not node.attribute:
        return None
    attribute = node.attribute[0]
    match attribute.name:
        case "value":
            value: Array = numpy_helper.to_array(attribute.t)
            return value
        case "value_float" | "value_floats":
            return np.asarray(helper.get_attribute_value(attribute), dtype=np.float32)
        case "value_int" | "value_ints":
            return np.asarray(helper.get_attribute_value(attribute), dtype=np.int64)
    return None


def _write_out_functions(graph: Graph) -> None:
    """Replace operators without a rule by the operators their standard says they are made of."""
    for _ in range(4):  # a function may be made of functions
        made_of_others = {
            (node.domain, node.op_type)
            for node in graph.nodes
            if key(node) not in RULES and key(node) not in FLAT and key(node) not in GATES and _has_body(graph, node)
        }
        if not made_of_others:
            return
        infer_types(graph)
        stand_ins = {
            name: kind for name in graph.constants if (kind := graph.type_of(name)) is not None and kind.is_float
        }
        stand_ins = {name: kind for name, kind in stand_ins.items() if graph.constants[name].size > 16}
        model = graph.model(graph.nodes, {**graph.inputs, **stand_ins}, [graph.scores])
        model.graph.value_info.extend(
            value_info(name, kind) for name, kind in graph.types.items() if name not in graph.inputs
        )
        inlined = onnx.inliner.inline_selected_functions(
            model, sorted(made_of_others), exclude=False, inline_schema_functions=True
        )
        written = _graph(inlined)
        graph.nodes = written.nodes
        graph.constants = {**graph.constants, **written.constants}
        for domain, version in written.opsets.items():
            graph.opsets.setdefault(domain, version)


def _has_body(graph: Graph, node: NodeProto) -> bool:
    if not onnx.defs.has(node.op_type, node.domain):
        return False
    try:
        schema = onnx.defs.get_schema(node.op_type, graph.opsets.get(node.domain, OPSET), node.domain)
    except onnx.defs.SchemaError:
        return False
    return bool(schema.has_function or schema.has_context_dependent_function)


def _to_single(graph: Graph) -> None:
    """Compute in float32, since half precision loses small gradients; the inputs keep their types."""
    halves = {name for name, value in graph.constants.items() if _element(value) in HALVES}
    feeds = {name: kind for name, kind in graph.inputs.items() if kind.element in HALVES}
    casts = any(_casts_to_half(node) for node in graph.nodes)
    if not halves and not feeds and not casts:
        return
    for name in halves:
        graph.constants[name] = graph.constants[name].astype(np.float32)
    fed = {name: f"{name}/arachne/single" for name in feeds}
    for node in graph.nodes:
        _cast_to_single(node)
        for index, name in enumerate(node.input):
            node.input[index] = fed.get(name, name)
    front = [helper.make_node("Cast", [name], [single], to=TensorProto.FLOAT) for name, single in fed.items()]
    graph.nodes[:0] = front
    graph.types = {
        name: TensorType(TensorProto.FLOAT, kind.shape) if kind.element in HALVES else kind
        for name, kind in graph.types.items()
    }


def _element(value: Array) -> int:
    return int(helper.np_dtype_to_tensor_dtype(value.dtype))


def _casts_to_half(node: NodeProto) -> bool:
    return bool(node.op_type == "Cast" and attributes(node).get("to") in HALVES)


def _cast_to_single(node: NodeProto) -> None:
    for attribute in node.attribute:
        if attribute.name in ("to", "dtype") and attribute.i in HALVES:
            attribute.i = TensorProto.FLOAT
        elif attribute.type == AttributeProto.TENSOR and attribute.t.data_type in HALVES:
            single = numpy_helper.to_array(attribute.t).astype(np.float32)
            attribute.t.CopyFrom(numpy_helper.from_array(single, attribute.t.name))
    for body in subgraphs(node):
        for info in (*body.input, *body.output, *body.value_info):
            if info.type.tensor_type.elem_type in HALVES:
                info.type.tensor_type.elem_type = TensorProto.FLOAT
        for inner in body.node:
            _cast_to_single(inner)


def _unfold_recurrent(graph: Graph) -> None:
    numbers = count(10**6)  # the tape that follows counts from zero
    nodes: list[NodeProto] = []
    for node in graph.nodes:
        if node.op_type in GATES and node.domain == "" and can_unfold(node):
            written, constants = unfold(graph, node, numbers)
            nodes += written
            graph.constants.update(constants)
        else:
            nodes.append(node)
    graph.nodes = nodes


def make_padding_explicit(graph: Graph) -> None:
    """Turn `auto_pad` into numbers wherever the sizes it depends on are known."""
    for node in graph.nodes:
        options = attributes(node)
        mode = options.get("auto_pad", "NOTSET")
        if mode not in ("SAME_UPPER", "SAME_LOWER") or node.op_type not in (
            "Conv",
            "MaxPool",
            "AveragePool",
            "ConvTranspose",
        ):
            continue
        kernel = options.get("kernel_shape") or _kernel(graph, node)
        kind = graph.type_of(node.input[0])
        sizes = None if kind is None or kind.shape is None else kind.shape[2:]
        if kernel is None or sizes is None or not all(isinstance(size, int) for size in sizes):
            continue
        pads = _same(mode, [int(size) for size in sizes if size is not None], kernel, options, node.op_type)
        kept = [attribute for attribute in node.attribute if attribute.name not in ("auto_pad", "pads", "output_shape")]
        del node.attribute[:]
        node.attribute.extend([*kept, helper.make_attribute("pads", pads)])


def _kernel(graph: Graph, node: NodeProto) -> list[int] | None:
    kind = graph.type_of(node.input[1]) if len(node.input) > 1 else None
    if kind is None or kind.shape is None:
        return None
    return [int(size) for size in kind.shape[2:] if isinstance(size, int)]


def _same(mode: str, sizes: list[int], kernel: list[int], options: dict[str, object], operator: str) -> list[int]:
    """Compute the padding of `SAME`: as many outputs as strides fit into the input."""
    axes = len(sizes)
    strides, dilations = options.get("strides") or [1] * axes, options.get("dilations") or [1] * axes
    if not isinstance(strides, list) or not isinstance(dilations, list):
        raise TypeError("strides and dilations are lists")
    before, behind = [], []
    for size, width, stride, dilation in zip(sizes, kernel, strides, dilations, strict=True):
        span = dilation * (width - 1) + 1
        total = span - stride if operator == "ConvTranspose" else (-(-size // stride) - 1) * stride + span - size
        total = max(0, total)
        small, large = total // 2, total - total // 2
        before.append(small if mode == "SAME_UPPER" else large)
        behind.append(large if mode == "SAME_UPPER" else small)
    return [*before, *behind]
