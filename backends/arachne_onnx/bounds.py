"""Estimate the sizes of a graph's tensors and the work they take, without computing them.

Sizes in a graph may be constants, or computed from the sizes of its inputs by a chain of nodes. So the inputs get
assumed sizes, chains of small whole numbers are evaluated, and the remaining sizes are inferred.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np
from onnx import NodeProto, helper

from arachne.errors import UnsafeModelError
from arachne.model.values import Array
from arachne_onnx.checks import every_node
from arachne_onnx.graph import Graph, TensorType, infer_types, subgraphs

ALWAYS_ALLOWED_BYTES = 128 * 2**20
PROPORTION = 256
"""Results per input may take this many bytes, or this many times the bytes of weights and input if that is more."""

ALWAYS_ALLOWED_PRODUCTS, PRODUCTS_PER_BYTE = 20 * 10**9, 2000
"""An input may take this many multiplications, or this many per byte of the weights if that is more."""

MAX_BATCH_ROWS = 1 << 16
"""The largest batch that a model may ask for."""

MAX_SHAPE_NUMBERS = 4096
"""The largest array of sizes that is evaluated, in numbers."""

ASSUMED_ROWS, ASSUMED_SIZES = 2, (16, 320)
"""Assumed sizes of the first axis of an input, and of other axes, if they are not fixed.

A detector that makes pictures smaller five times and larger again fits sizes that 32 divides; those are tried where the
first one leaves a size unknown.
"""

GROWING = ("ConstantOfShape", "Expand", "Tile", "Range", "OneHot", "Pad", "Resize", "Upsample", "MaxUnpool",
           "CenterCropPad", "Col2Im", "HannWindow", "HammingWindow", "BlackmanWindow")  # fmt: skip
"""Operators whose result sizes depend on the values of their arguments."""

_SIMPLE = """
    Abs Add And Cast CastLike Ceil Clip Concat ConstantOfShape Div Equal Expand Flatten Floor Gather Greater
    GreaterOrEqual Identity Less LessOrEqual Max Min Mod Mul Neg Not Or Pow Range ReduceMax ReduceMin ReduceProd
    ReduceSum Reshape Shape Sign Size Slice Sqrt Squeeze Sub Sum Tile Transpose Unsqueeze Where Xor
"""
SIMPLE = frozenset(_SIMPLE.split())
"""Operators that are evaluated here; all are fast on a few numbers."""


def evaluate_small(
    nodes: Iterable[NodeProto], values: Mapping[str, Array], opsets: Mapping[str, int]
) -> dict[str, Array]:
    """Evaluate the nodes that compute small arrays from known ones.

    Args:
        nodes: In order; nodes with unknown or large arguments, and operators that are not simple, are skipped.
        values: The known arrays by name.
        opsets: Version of each operator set.

    Returns:
        The new ones by name.
    """
    found: dict[str, Array] = {}
    for node in nodes:
        given = [found.get(name, values.get(name)) for name in node.input if name]
        arrays = [value for value in given if value is not None and value.size <= MAX_SHAPE_NUMBERS]
        if node.domain or node.op_type not in SIMPLE or not given or len(arrays) != len(given) or len(node.output) != 1:
            continue
        from onnx.reference import ReferenceEvaluator  # only here, and large

        try:
            if _result_size(node.op_type, arrays) > MAX_SHAPE_NUMBERS:
                continue
            names = [name for name in node.input if name]
            with np.errstate(all="ignore"):
                result = ReferenceEvaluator(node, opsets=dict(opsets)).run(None, dict(zip(names, arrays, strict=True)))
        except Exception:  # the reference raises whatever NumPy raises for numbers that do not fit
            continue
        if isinstance(result[0], np.ndarray | np.generic) and np.size(result[0]) <= MAX_SHAPE_NUMBERS:
            found[node.output[0]] = np.asarray(result[0])
    return found


def _result_size(operator: str, arrays: list[Array]) -> float:
    """Estimate the number of elements of an operator's result."""
    match operator:
        case "ConstantOfShape" | "Expand":
            return max(math.prod(map(int, arrays[-1].reshape(-1))), arrays[0].size)
        case "Tile":
            return arrays[0].size * math.prod(map(int, arrays[-1].reshape(-1)))
        case "Range":
            start, limit, delta = (float(array.reshape(-1)[0]) for array in arrays)
            return abs((limit - start) / delta) if delta else math.inf
        case "Pow":
            return float(np.abs(arrays[-1]).max(initial=0)) * 64  # NumPy's whole numbers wrap around, at no cost
    return math.prod(array.size for array in arrays[:2])


def check_sizes(graph: Graph) -> None:
    """Refuse a graph whose results would be out of proportion to its weights.

    Raises:
        UnsafeModelError: It has such a node, or one of unknown size.
    """
    for name, kind in graph.inputs.items():
        rows = kind.shape[0] if kind.shape else None
        # A batch that is fixed is filled up to that many inputs whenever the model runs.
        if isinstance(rows, int) and (rows > MAX_BATCH_ROWS or _bytes(kind) > 2 * ALWAYS_ALLOWED_BYTES):
            raise UnsafeModelError(f"the model's input '{name}' takes batches of {rows:,}, too many at once")
    for assumed in ASSUMED_SIZES:
        sized = _with_sizes(graph, assumed)
        doubtful = [node.op_type for node in sized.nodes if _has_unknown_size(sized, node)]
        if not doubtful:
            break
    if doubtful:
        raise UnsafeModelError(f"the model's '{doubtful[0]}' makes a tensor whose size only its values tell")
    weights = sum(value.nbytes for value in graph.constants.values())
    inputs = sum(_bytes(kind) for kind in sized.inputs.values())
    room, work = (
        max(ALWAYS_ALLOWED_BYTES, PROPORTION * (weights + inputs)),
        max(ALWAYS_ALLOWED_PRODUCTS, PRODUCTS_PER_BYTE * weights),
    )
    for node in sized.nodes:
        kinds = [sized.type_of(name) for name in node.output if name]
        room -= sum(_bytes(kind) for kind in kinds if kind is not None)
        work -= _work(sized, node)
        if room < 0 or work < 0:
            raise UnsafeModelError(f"the model's '{node.op_type}' is out of proportion to its weights and inputs")
        for body in subgraphs(node):
            _check_body(list(every_node(body.node)), sized)


def _has_unknown_size(graph: Graph, node: NodeProto) -> bool:
    """Whether a node's result has a size that depends on values, and nothing tells it."""
    if node.op_type not in GROWING or node.domain:
        return False
    kinds = [graph.type_of(name) for name in node.output if name]
    return any(kind is None or kind.shape is None or None in kind.shape for kind in kinds)


def _with_sizes(graph: Graph, assumed: int) -> Graph:
    """Copy a graph with sizes for its inputs, and with everything computed from sizes as constants."""
    names: dict[str, int] = {}

    def size(value: int | str | None, axis: int) -> int:
        if isinstance(value, int):
            return value
        chosen = assumed if axis else ASSUMED_ROWS
        return names.setdefault(value, chosen) if value else chosen

    inputs = {
        name: kind
        if kind.shape is None
        else replace(kind, shape=tuple(size(value, axis) for axis, value in enumerate(kind.shape)))
        for name, kind in graph.inputs.items()
    }
    sized = replace(graph, nodes=list(graph.nodes), constants=dict(graph.constants), inputs=inputs, types={})
    for _ in range(8):  # a size may be made of that of a tensor whose size was made so
        infer_types(sized)
        shapes = {
            node.output[0]: np.array(kind.shape, np.int64)
            for node in sized.nodes
            if node.op_type == "Shape" and not node.attribute and (kind := sized.type_of(node.input[0])) is not None
            if kind.shape is not None and all(isinstance(value, int) for value in kind.shape)
        }
        found = {**shapes, **evaluate_small(sized.nodes, {**sized.constants, **shapes}, sized.opsets)}
        sized.nodes = [node for node in sized.nodes if not node.output or node.output[0] not in found]
        sized.constants |= found
        if not found:
            break
    return sized


def _bytes(kind: TensorType) -> int:
    """Bytes of a tensor; unknown sizes count as one."""
    if kind.shape is None:
        return 0
    sizes = math.prod(size if isinstance(size, int) else 1 for size in kind.shape)
    try:
        return sizes * int(helper.tensor_dtype_to_np_dtype(kind.element).itemsize)
    except (KeyError, TypeError):
        return sizes * 8


def _work(graph: Graph, node: NodeProto) -> int:
    """How many multiplications a product takes, for one input; 0 for other nodes."""
    if node.op_type not in ("MatMul", "Gemm", "Conv", "ConvTranspose") or len(node.input) < 2:
        return 0
    result, first, second = (graph.type_of(name) for name in (node.output[0], node.input[0], node.input[1]))
    if result is None or first is None or second is None or not second.shape or result.shape is None:
        return 0
    by = [size if isinstance(size, int) else 1 for size in second.shape]
    gives = math.prod(size if isinstance(size, int) else 1 for size in result.shape)
    if node.op_type in ("Conv", "ConvTranspose"):
        return gives * math.prod(by[1:]) // ASSUMED_ROWS
    return gives * (max(by) if node.op_type == "Gemm" else by[max(0, len(by) - 2)]) // ASSUMED_ROWS


def _check_body(nodes: list[NodeProto], graph: Graph) -> None:
    """Check the sizes inside a body that are computed from constants."""
    known = {**graph.constants, **evaluate_small(nodes, graph.constants, graph.opsets)}
    for node in nodes:
        if node.op_type not in GROWING:
            continue
        given = [known[name] for name in node.input if name in known and known[name].size <= MAX_SHAPE_NUMBERS]
        numbers = [float(np.abs(array).max(initial=0)) for array in given if array.dtype.kind in "iuf"]
        wanted = [
            math.prod(max(1, int(size)) for size in array.reshape(-1)) for array in given if array.dtype.kind in "iu"
        ]
        if any(count * 4 > ALWAYS_ALLOWED_BYTES for count in itertools.chain(numbers, wanted)):
            raise UnsafeModelError(f"the model's '{node.op_type}' in a body is out of proportion to its weights")
