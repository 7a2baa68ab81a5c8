"""How large a graph's tensors get and how much work they are, worked out without computing them.

Sizes in a graph may be numbers of its own, or made of the sizes of its inputs by a chain of nodes. So the inputs are
given some sizes, chains of small whole numbers are worked out, and what remains is inferred.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np
from onnx import NodeProto, helper
from onnx.reference import ReferenceEvaluator

from arachne.errors import UnsafeModelError
from arachne.values import Array
from arachne_onnx.checks import every_node
from arachne_onnx.graph import Graph, TensorType, infer_types, subgraphs

SMALL = 128 * 2**20
PROPORTION = 256
"""Bytes that a run's results may always take for each input, and how many times the bytes of weights and input."""

LEAST_WORK, WORK = 20 * 10**9, 2000
"""Multiplications an input may always take, and how many for each byte of the weights."""

MOST_ROWS = 1 << 16
"""The largest batch that a model may ask for."""

FEW = 4096
"""How many numbers an array of sizes has at most."""

ROWS, UNKNOWN = 2, 16
"""Sizes taken for the first axis of an input, and for others, where they are open."""

GROWING = ("ConstantOfShape", "Expand", "Tile", "Range", "OneHot", "Pad", "Resize", "Upsample", "MaxUnpool",
           "CenterCropPad", "Col2Im", "HannWindow", "HammingWindow", "BlackmanWindow")  # fmt: skip
"""Operators whose results are as large as the numbers they are given say."""

_SIMPLE = """
    Abs Add And Cast CastLike Ceil Clip Concat ConstantOfShape Div Equal Expand Flatten Floor Gather Greater
    GreaterOrEqual Identity Less LessOrEqual Max Min Mod Mul Neg Not Or Pow Range ReduceMax ReduceMin ReduceProd
    ReduceSum Reshape Shape Sign Size Slice Sqrt Squeeze Sub Sum Tile Transpose Unsqueeze Where Xor
"""
SIMPLE = frozenset(_SIMPLE.split())
"""Operators that are worked out here: on a few numbers none of them takes any time."""


def worked_out(nodes: Iterable[NodeProto], values: Mapping[str, Array], opsets: Mapping[str, int]) -> dict[str, Array]:
    """What small arrays the nodes make of known ones.

    Args:
        nodes: In order; those that take something unknown or large, or are not simple, are passed over.
        values: The known arrays by name.
        opsets: Version of each operator set.

    Returns:
        The new ones by name.
    """
    found: dict[str, Array] = {}
    for node in nodes:
        given = [found.get(name, values.get(name)) for name in node.input if name]
        arrays = [value for value in given if value is not None and value.size <= FEW]
        if node.domain or node.op_type not in SIMPLE or not given or len(arrays) != len(given) or len(node.output) != 1:
            continue
        try:
            if _grown(node.op_type, arrays) > FEW:
                continue
            names = [name for name in node.input if name]
            with np.errstate(all="ignore"):
                result = ReferenceEvaluator(node, opsets=dict(opsets)).run(None, dict(zip(names, arrays, strict=True)))
        except Exception:  # the reference raises whatever NumPy raises for numbers that do not fit
            continue
        if isinstance(result[0], np.ndarray | np.generic) and np.size(result[0]) <= FEW:
            found[node.output[0]] = np.asarray(result[0])
    return found


def _grown(operator: str, arrays: list[Array]) -> float:
    """How many numbers an operator gives, where it may give more than it takes."""
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
        UnsafeModelError: It has such a node, or one whose size nothing tells.
    """
    for name, kind in graph.inputs.items():
        rows = kind.shape[0] if kind.shape else None
        # A batch that is fixed is filled up to that many inputs whenever the model runs.
        if isinstance(rows, int) and (rows > MOST_ROWS or _bytes(kind) > 2 * SMALL):
            raise UnsafeModelError(f"the model's input '{name}' takes batches of {rows:,}, too many at once")
    sized = _sized(graph)
    weights = sum(value.nbytes for value in graph.constants.values())
    inputs = sum(_bytes(kind) for kind in sized.inputs.values())
    room, work = max(SMALL, PROPORTION * (weights + inputs)), max(LEAST_WORK, WORK * weights)
    for node in sized.nodes:
        kinds = [sized.type_of(name) for name in node.output if name]
        unknown = any(kind is None or kind.shape is None or None in kind.shape for kind in kinds)
        if node.op_type in GROWING and not node.domain and unknown:
            raise UnsafeModelError(f"the model's '{node.op_type}' makes a tensor whose size only its values tell")
        room -= sum(_bytes(kind) for kind in kinds if kind is not None)
        work -= _work(sized, node)
        if room < 0 or work < 0:
            raise UnsafeModelError(f"the model's '{node.op_type}' is out of proportion to its weights and inputs")
        for body in subgraphs(node):
            _check_body(list(every_node(body.node)), sized)


def _sized(graph: Graph) -> Graph:
    """A copy with sizes for its inputs, and with what can be worked out from them as constants."""
    names: dict[str, int] = {}

    def size(value: int | str | None, axis: int) -> int:
        if isinstance(value, int):
            return value
        chosen = UNKNOWN if axis else ROWS
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
        found = {**shapes, **worked_out(sized.nodes, {**sized.constants, **shapes}, sized.opsets)}
        sized.nodes = [node for node in sized.nodes if not node.output or node.output[0] not in found]
        sized.constants |= found
        if not found:
            break
    return sized


def _bytes(kind: TensorType) -> int:
    """What a tensor takes; sizes that are not known count as one."""
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
        return gives * math.prod(by[1:]) // ROWS
    return gives * (max(by) if node.op_type == "Gemm" else by[max(0, len(by) - 2)]) // ROWS


def _check_body(nodes: list[NodeProto], graph: Graph) -> None:
    """Sizes inside a body, where they are made of constants."""
    known = {**graph.constants, **worked_out(nodes, graph.constants, graph.opsets)}
    for node in nodes:
        if node.op_type not in GROWING:
            continue
        given = [known[name] for name in node.input if name in known and known[name].size <= FEW]
        numbers = [float(np.abs(array).max(initial=0)) for array in given if array.dtype.kind in "iuf"]
        wanted = [
            math.prod(max(1, int(size)) for size in array.reshape(-1)) for array in given if array.dtype.kind in "iu"
        ]
        if any(count * 4 > SMALL for count in itertools.chain(numbers, wanted)):
            raise UnsafeModelError(f"the model's '{node.op_type}' in a body is out of proportion to its weights")
