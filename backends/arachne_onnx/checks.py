"""Check the message of an ONNX file before anything is computed from it.

Every tensor must have as many numbers as its shape requires, in one place and of a known type. Functions must not call
themselves, and inlined they must not exceed a number of nodes. No operator may draw random numbers.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import onnx
from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, helper

from arachne.errors import ModelError, UnsafeModelError
from arachne_onnx.graph import FREE_SIZE
from arachne_onnx.support_vectors import MACHINES, check_support_vectors
from arachne_onnx.trees import TREES, check_trees

MAX_NODES, MAX_DEPTH = 20_000, 64
"""How many nodes a model may have once its functions are written out, and how deep functions may call each other."""

MAX_SIZE = 1 << 40

RANDOM = ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")

_CONTRIBUTED = """
    Attention BiasAdd BiasDropout BiasGelu BiasSoftmax BiasSplitGelu DecoderAttention DequantizeLinear
    DynamicQuantizeLSTM DynamicQuantizeMatMul EmbedLayerNormalization ExpandDims FastGelu FusedConv FusedGemm
    FusedMatMul FusedMatMulActivation GatedRelativePositionBias Gelu GemmFastGelu GroupNorm GroupQueryAttention
    Inverse LongformerAttention MatMulInteger16 MatMulIntegerToFloat MatMulNBits MaxpoolWithMask MultiHeadAttention
    NhwcConv NhwcFusedConv NhwcMaxPool PackedAttention QAttention QEmbedLayerNormalization QGemm QLinearAdd
    QLinearAveragePool QLinearConcat QLinearConv QLinearGlobalAveragePool QLinearLeakyRelu QLinearMul
    QLinearReduceMean QLinearSigmoid QLinearSoftmax QLinearWhere QuantizeLinear QuickGelu RelativePositionBias
    RemovePadding RestorePadding RotaryEmbedding SkipGroupNorm SkipLayerNormalization
    SkipSimplifiedLayerNormalization TransposeMatMul Trilu
"""
CONTRIBUTED = frozenset(_CONTRIBUTED.split())
"""Operators of `com.microsoft` that exporters and onnxruntime's own optimisers put into classifiers."""

_LEARNT = """
    ArrayFeatureExtractor Binarizer CastMap CategoryMapper DictVectorizer FeatureVectorizer Imputer LabelEncoder
    LinearClassifier LinearRegressor Normalizer OneHotEncoder Scaler SVMClassifier TreeEnsembleClassifier ZipMap
"""
LEARNT = frozenset(_LEARNT.split())
"""Operators of `ai.onnx.ml` around networks of scikit-learn, and models that give scores and hold no layers."""

_FIELDS = {
    TensorProto.FLOAT: "float_data",
    TensorProto.DOUBLE: "double_data",
    TensorProto.INT64: "int64_data",
    TensorProto.UINT64: "uint64_data",
    TensorProto.UINT32: "uint64_data",
    TensorProto.STRING: "string_data",
}
"""Where numbers stand that are not raw bytes; in `int32_data` for every other type."""

FIELDS = ("float_data", "double_data", "int32_data", "int64_data", "uint64_data", "string_data", "raw_data")


def check_model(model: ModelProto) -> None:
    """Refuse a message that is not sound.

    Raises:
        ModelError: It is damaged.
        UnsafeModelError: It reads other files, or would grow out of proportion.
    """
    if model.training_info:
        raise ModelError("the model carries training information, expected one for inference; export it again")
    for function in model.functions:
        for node in every_node(function.node):
            for value in _tensors_of(node):
                _check_tensor(value, "inside a function", beside=False)
        for attribute in function.attribute_proto:
            for value in _tensors_in(attribute):
                _check_tensor(value, "inside a function", beside=False)
    for graph in _graphs(model.graph):
        for value in graph.initializer:
            _check_tensor(value, f"'{value.name}'", beside=True)
        if graph.sparse_initializer:
            name = graph.sparse_initializer[0].values.name
            raise ModelError(f"the model's weight '{name}' is stored as a sparse tensor, expected a dense one")
        for node in graph.node:
            for attribute in node.attribute:
                for value in _tensors_in(attribute):
                    _check_tensor(value, f"of the node '{node.name or node.op_type}'", beside=value is attribute.t)
    _check_inputs(model.graph)
    _check_count(model)
    inside = (graph.node for graph in itertools.islice(_graphs(model.graph), 1, None))
    for node in itertools.chain(*inside, *(every_node(function.node) for function in model.functions)):
        if node.op_type in TREES | MACHINES:
            raise ModelError(f"the model has its '{node.op_type}' in a branch or a function, where it is not checked")
    check_trees(model.graph)
    check_support_vectors(model.graph)


def check_operators(nodes: Sequence[NodeProto], functions: Sequence[FunctionProto]) -> None:
    """Refuse operators that onnxruntime does not have, that are not known to be safe, or that draw random numbers.

    Raises:
        ModelError: There is one.
    """
    local = {(function.domain, function.name) for function in functions}
    inside = [node for function in functions for node in every_node(function.node)]
    for node in itertools.chain(every_node(nodes), inside):
        domain = "" if node.domain == "ai.onnx" else node.domain
        if (domain, node.op_type) in local:
            continue
        if domain == "" and node.op_type in RANDOM:
            raise ModelError(f"the model draws random numbers in '{node.op_type}', so no two runs of it are the same")
        if domain == "" and node.op_type == "Dropout" and len(node.input) > 2 and node.input[2]:
            raise ModelError("the model's dropout may be turned on, and then no two runs are the same; export it again")
        others = {"com.microsoft": CONTRIBUTED, "ai.onnx.ml": LEARNT}
        known = onnx.defs.has(node.op_type) if domain == "" else node.op_type in others.get(domain, ())
        if not known:
            where = f" of domain '{domain}'" if domain else ""
            fused = (
                "; onnxruntime's optimiser puts such operators in: use the file from before it was optimised"
                if domain.startswith("com.microsoft")
                else ""
            )
            raise ModelError(f"the model uses the operator '{node.op_type}'{where}, which is not known here{fused}")


def check_signatures(nodes: Sequence[NodeProto], opset: int) -> None:
    """Refuse nodes of the standard that have fewer inputs, or other attributes, than their operator.

    Raises:
        ModelError: There is one.
    """
    for node in every_node(nodes):
        if node.domain not in ("", "ai.onnx"):
            continue
        try:
            schema = onnx.defs.get_schema(node.op_type, opset, "")
        except onnx.defs.SchemaError as error:
            raise ModelError(f"the model uses the operator '{node.op_type}', which opset {opset} has not") from error
        needed = [kind.option == onnx.defs.OpSchema.FormalParameterOption.Single for kind in schema.inputs]
        lacking = len(node.input) < schema.min_input or any(
            wanted and not name for wanted, name in zip(needed, node.input, strict=False)
        )
        odd = len(node.input) > schema.max_input or len(node.output) > schema.max_output
        if lacking or odd or len(node.output) < max(1, schema.min_output) or not any(node.output):
            raise ModelError(
                f"the model's '{node.op_type}' has {len(node.input)} inputs and {len(node.output)} outputs, which is "
                "not what the operator has"
            )
        for attribute in node.attribute:
            known = schema.attributes.get(attribute.name)
            if known is None or int(known.type.value) != attribute.type:
                raise ModelError(f"the model's '{node.op_type}' has an attribute '{attribute.name}' it cannot have")
        for name, known in schema.attributes.items():
            if known.required and not any(attribute.name == name for attribute in node.attribute):
                raise ModelError(f"the model's '{node.op_type}' lacks its attribute '{name}'")


def every_node(nodes: Sequence[NodeProto]) -> Iterator[NodeProto]:
    """The nodes, and those in their bodies."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from every_node(graph.node)


def _graphs(graph: GraphProto) -> Iterator[GraphProto]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs):
                yield from _graphs(body)


def _tensors_of(node: NodeProto) -> Iterator[TensorProto]:
    for attribute in node.attribute:
        yield from _tensors_in(attribute)


def _tensors_in(attribute: AttributeProto) -> Iterator[TensorProto]:
    if attribute.HasField("sparse_tensor") or attribute.sparse_tensors:
        raise ModelError("the model holds a sparse tensor, expected dense ones")
    if attribute.HasField("t"):
        yield attribute.t
    yield from attribute.tensors


def _check_tensor(value: TensorProto, where: str, *, beside: bool) -> None:
    """Check the type and shape of a tensor, and that its numbers are complete and in one place."""
    if value.data_type not in TensorProto.DataType.values() or value.data_type == TensorProto.UNDEFINED:
        raise ModelError(f"the model's tensor {where} has the unknown data type {value.data_type}")
    if any(size < 0 or size > MAX_SIZE for size in value.dims) or len(value.dims) > 32 or value.HasField("segment"):
        raise ModelError(f"the model's tensor {where} has sizes that no tensor has")
    filled = [name for name in FIELDS if len(getattr(value, name))]
    if value.data_location == TensorProto.EXTERNAL:
        if not beside:
            raise UnsafeModelError(f"the model keeps a tensor {where} in another file, where it would not be found")
        if filled or value.data_type == TensorProto.STRING:
            raise UnsafeModelError(f"the model's tensor {where} has no numbers, or has them in two places")
        return
    if value.external_data:
        raise UnsafeModelError(f"the model's tensor {where} names another file for numbers that it holds itself")
    many = 1
    for size in value.dims:
        many *= size
    expected, found = _count_numbers(value, many)
    if len(filled) > 1 or expected != found:
        raise ModelError(
            f"the model's tensor {where} should have {expected:,} numbers or bytes, the file has {found:,}"
        )


def _count_numbers(value: TensorProto, many: int) -> tuple[int, int]:
    """Return the numbers, or bytes of raw data, that a tensor of `many` elements needs, and those it has."""
    bits = _bits(value.data_type)
    if len(value.raw_data):
        return -(-many * bits // 8), len(value.raw_data)
    found = len(getattr(value, _FIELDS.get(value.data_type, "int32_data")))
    if value.data_type in (TensorProto.COMPLEX64, TensorProto.COMPLEX128):
        raise ModelError("the model holds complex numbers, expected real ones")
    per_entry = 8 // bits if bits < 8 else 1
    return -(-many // per_entry), found


def _bits(data_type: int) -> int:
    """How many bits a number of a type takes in raw bytes."""
    name = TensorProto.DataType.Name(data_type)
    if name.endswith(("INT4", "FLOAT4E2M1")):
        return 4
    if name.endswith("INT2"):
        return 2
    return 8 if name == "STRING" else 8 * int(helper.tensor_dtype_to_np_dtype(data_type).itemsize)


def _check_inputs(graph: GraphProto) -> None:
    for value in (*graph.input, *graph.output, *graph.value_info):
        kind = value.type.tensor_type
        if kind.elem_type not in TensorProto.DataType.values():
            raise ModelError(f"the model's '{value.name}' has the unknown data type {kind.elem_type}")
        if any(size.dim_value < FREE_SIZE or size.dim_value > MAX_SIZE for size in kind.shape.dim):
            raise ModelError(f"the model's '{value.name}' has sizes that no tensor has")


def _check_count(model: ModelProto) -> None:
    """Limit the number of nodes after all functions are inlined."""
    functions = {(function.domain, function.name, function.overload): function for function in model.functions}
    if len(functions) != len(model.functions):
        raise ModelError("the model has two functions of one name")
    known: dict[tuple[str, str, str], int] = {}

    def size(nodes: Sequence[NodeProto], depth: int) -> int:
        if depth > MAX_DEPTH:
            raise ModelError(f"the model's functions call each other more than {MAX_DEPTH} deep, or in a circle")
        total = 0
        for node in every_node(nodes):
            key = (node.domain, node.op_type, node.overload)
            if key in functions and key not in known:
                known[key] = size(functions[key].node, depth + 1)
            total += known[key] if key in functions else 1
            if total > MAX_NODES:
                raise ModelError(f"the model has more than {MAX_NODES:,} nodes with its functions written out")
        return total

    size(model.graph.node, 0)
