"""Rules for pooling and resizing."""

from __future__ import annotations

import math
from math import ceil
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from arachne.model.values import Array
from arachne_onnx.graph import IR_VERSION
from arachne_onnx.rules.tape import BackwardStep, Tape, UnknownShapeError, input_rule


@input_rule("MaxPool")
def max_pool(tape: Tape, step: BackwardStep) -> str:
    """Add each gradient at the position of its maximum, which the forward node returns as an extra output.

    Adjacent windows do not need it: there, equal maxima share the gradient.
    """
    x = step.inputs[0]
    if _side_by_side(tape, step):
        return _shared_by_maxima(tape, step)
    if len(step.node.output) < 2 or not step.node.output[1]:
        del step.node.output[1:]
        step.node.output.append(tape.name())
    return tape.scatter_flat(x, step.node.output[1], step.gradient)


def _side_by_side(tape: Tape, step: BackwardStep) -> bool:
    kernel = step.get("kernel_shape")
    kind = tape.type_of(step.inputs[0])
    plain = not any(step.get("pads", [])) and set(step.get("dilations", [1])) == {1}
    if step.get("strides", [1] * len(kernel)) != kernel or not plain or kind is None or kind.shape is None:
        return False
    return all(isinstance(size, int) and size % width == 0 for size, width in zip(kind.shape[2:], kernel, strict=True))


def _shared_by_maxima(tape: Tape, step: BackwardStep) -> str:
    x, kernel = step.inputs[0], step.get("kernel_shape")

    def spread(name: str) -> str:
        # Broadcasting over such short axes is slow in onnxruntime, repeating is not.
        scales = tape.constant([1, 1, *kernel], np.float32)
        nearest: dict[str, Any] = {
            "mode": "nearest",
            "coordinate_transformation_mode": "asymmetric",
            "nearest_mode": "floor",
        }
        return tape.op("Resize", name, None, scales, **nearest)

    mask = tape.op("CastLike", tape.op("Equal", x, spread(step.outputs[0])), x)
    share = tape.op("AveragePool", mask, kernel_shape=kernel, strides=kernel)
    each = tape.op("Div", tape.scale(step.gradient, 1 / math.prod(kernel), x), share)
    return tape.op("Mul", mask, spread(each))


@input_rule("GlobalMaxPool")
def global_max_pool(tape: Tape, step: BackwardStep) -> str:
    """To the largest; equal ones share."""
    x, y = step.inputs[0], step.outputs[0]
    mask = tape.op("CastLike", tape.op("Equal", x, y), x)
    axes = tape.constant(range(2, tape.rank(x)))
    ties = tape.op("ReduceSum", mask, axes, keepdims=1)
    return tape.op("Mul", mask, tape.op("Div", step.gradient, ties))


@input_rule("GlobalAveragePool")
def global_average_pool(tape: Tape, step: BackwardStep) -> str:
    """Spread evenly."""
    x, y = step.inputs[0], step.outputs[0]
    size = tape.op("CastLike", tape.op("Div", tape.op("Size", x), tape.op("Size", y)), x)
    return tape.op("Expand", tape.op("Div", step.gradient, size), tape.op("Shape", x))


@input_rule("AveragePool")
def average_pool(tape: Tape, step: BackwardStep) -> str:
    """Divided by how many were averaged, then laid out again by a transposed convolution with ones."""
    x = step.inputs[0]
    kernel = step.get("kernel_shape")
    axes = len(kernel)
    if step.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        raise UnknownShapeError(x)
    strides, dilations = step.get("strides", [1] * axes), step.get("dilations", [1] * axes)
    pads = list(step.get("pads", [0] * 2 * axes))
    walk = {"strides": strides, "dilations": dilations}
    sizes = tape.op("Shape", x, start=2)
    ones = tape.op("Expand", tape.number(1, x), tape.op("Concat", tape.constant([1, 1]), sizes, axis=0))
    if step.get("count_include_pad", 0):
        ones = tape.op("Pad", ones, tape.constant([0, 0, *pads[:axes], 0, 0, *pads[axes:]]), tape.number(1, x))
        inner = [0] * 2 * axes
    else:
        inner = pads
    box = tape.op("Expand", tape.number(1, x), tape.constant([1, 1, *kernel]))
    extra = _ceiling(tape, step, kernel, strides, dilations, pads) if step.get("ceil_mode", 0) else [0] * axes
    counted = [*inner[:axes], *(end + more for end, more in zip(inner[axes:], extra, strict=True))]
    counts = tape.op("Conv", ones, box, pads=counted, **walk)
    flat = tape.op("Concat", tape.constant([-1, 1]), tape.op("Shape", step.gradient, start=2), axis=0)
    shares = tape.op("Reshape", tape.op("Div", step.gradient, counts), flat)
    full = tape.op("ConvTranspose", shares, box, **walk)
    end = tape.op("Sub", tape.op("Add", sizes, tape.constant(pads[:axes])), tape.op("Shape", full, start=2))
    crop = tape.op("Concat", tape.constant([-size for size in pads[:axes]]), end, axis=0)
    laid = tape.op("Pad", full, crop, tape.number(0, x), tape.constant(range(2, axes + 2)))
    return tape.op("Reshape", laid, tape.op("Shape", x))


def _ceiling(
    tape: Tape, step: BackwardStep, kernel: list[int], strides: list[int], dilations: list[int], pads: list[int]
) -> list[int]:
    """Return the padding behind each axis that gives, rounding down, the sizes of `ceil_mode`."""
    extra = []
    axes = len(kernel)
    for axis, size in enumerate(tape.shape(step.inputs[0])[2:]):
        if size < 0:
            raise UnknownShapeError(step.inputs[0])
        room = size + pads[axis] + pads[axes + axis] - dilations[axis] * (kernel[axis] - 1) - 1
        windows = ceil(room / strides[axis])
        # A window that would start in the padding at the end is dropped.
        if windows * strides[axis] >= size + pads[axis]:
            windows -= 1
        extra.append(max(0, windows * strides[axis] - room))
    return extra


@input_rule("LRN")
def lrn(tape: Tape, step: BackwardStep) -> str:
    """With y = x / D^beta and D a window's sum of squares over the channels."""
    x = step.inputs[0]
    size, alpha, beta, bias = (
        step.get("size"),
        step.get("alpha", 1e-4),
        step.get("beta", 0.75),
        step.get("bias", 1.0),
    )
    before, behind = (size - 1) // 2, ceil((size - 1) / 2)

    def window(name: str, low: int, high: int) -> str:
        plane = tape.op("Reshape", name, tape.op("Concat", tape.op("Shape", x, end=2), tape.constant([1, -1]), axis=0))
        plane = tape.op("Transpose", plane, perm=[0, 2, 1, 3])
        box = tape.op("Expand", tape.number(1, x), tape.constant([1, 1, size, 1]))
        summed = tape.op("Conv", plane, box, pads=[low, 0, high, 0])
        return tape.op("Reshape", tape.op("Transpose", summed, perm=[0, 2, 1, 3]), tape.op("Shape", x))

    squares = tape.scale(window(tape.op("Mul", x, x), before, behind), alpha / size, x)
    base = tape.op("Add", squares, tape.number(bias, x))
    scale = tape.op("Pow", base, tape.number(-beta, x))
    inner = tape.op("Div", tape.op("Mul", tape.op("Mul", step.gradient, x), scale), base)
    spread = tape.scale(tape.op("Mul", x, window(inner, behind, before)), 2 * alpha * beta / size, x)
    return tape.op("Sub", tape.op("Mul", step.gradient, scale), spread)


@input_rule("Resize")
def resize(tape: Tape, step: BackwardStep) -> str:
    """Along each axis resizing is a matrix; the gradient goes through its transpose."""
    x, y = step.inputs[0], step.outputs[0]
    before, after = tape.shape(x), tape.shape(y)
    g = step.gradient
    letters = "abcdefgh"[: len(before)]
    for axis, (small, large) in enumerate(zip(before, after, strict=True)):
        if axis == 0 or (small == large and small > 0 and _scale(tape, step, axis) in (None, 1.0)):
            continue
        if small < 0 or large < 0:
            raise UnknownShapeError(x)
        matrix = tape.constant(_resize_matrix(tape, step, axis, small, large), np.float32)
        back = letters.replace(letters[axis], "z")
        g = tape.op("Einsum", g, tape.op("CastLike", matrix, x), equation=f"{letters},z{letters[axis]}->{back}")
    return g


def _scale(tape: Tape, step: BackwardStep, axis: int) -> float | None:
    scales = tape.value(step.input(2))
    if scales is None or not scales.size:
        return None
    axes = step.get("axes", range(len(scales)))
    return float(scales[list(axes).index(axis)]) if axis in axes else 1.0


def _resize_matrix(tape: Tape, step: BackwardStep, axis: int, small: int, large: int) -> Array:
    """The `(small, large)` matrix of one axis: the operator itself, run on unit vectors."""
    import onnxruntime as ort

    scale = _scale(tape, step, axis)
    given = ["x", "", "s", ""] if scale is not None else ["x", "", "", "n"]
    skipped = ("axes", "keep_aspect_ratio_policy")
    options = {name: value for name, value in step.attributes.items() if name not in skipped}
    node = helper.make_node("Resize", given, ["y"], **options)
    extra = (
        helper.make_tensor("s", TensorProto.FLOAT, [2], [1.0, scale])
        if scale is not None
        else helper.make_tensor("n", TensorProto.INT64, [2], [small, large])
    )
    graph = helper.make_graph(
        [node],
        "resize",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [small, small])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [extra],
    )
    opset = helper.make_opsetid("", tape.graph.opsets[""])
    model = helper.make_model(graph, opset_imports=[opset], ir_version=IR_VERSION)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    matrix: Array = session.run(None, {"x": np.eye(small, dtype=np.float32)})[0]
    return matrix
