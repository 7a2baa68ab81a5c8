"""Operators on single numbers, softmax, and what fused activations do."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
from onnx import helper

from arachne_tflite.file import Operator, Tensor
from arachne_tflite.translate import CHANNELS_FIRST, TO_CHANNELS_FIRST, Writer

UNARY = {
    "LOGISTIC": "Sigmoid",
    "TANH": "Tanh",
    "EXP": "Exp",
    "LOG": "Log",
    "SQRT": "Sqrt",
    "NEG": "Neg",
    "ABS": "Abs",
    "FLOOR": "Floor",
    "ELU": "Elu",
    "HARD_SWISH": "HardSwish",
}
BINARY = {"ADD": "Add", "MUL": "Mul", "SUB": "Sub", "DIV": "Div", "MAXIMUM": "Max", "MINIMUM": "Min", "POW": "Pow"}

CLIPS = {"RELU6": (0.0, 6.0), "RELU_N1_TO_1": (-1.0, 1.0), "RELU_0_TO_1": (0.0, 1.0)}


def activation(writer: Writer, kind: str, name: str) -> str:
    """Add an activation behind a tensor."""
    if kind in CLIPS:
        limits = [writer.constant(np.array(limit, np.float32)) for limit in CLIPS[kind]]
        return writer.add("Clip", [name, *limits])
    return writer.add({"RELU": "Relu", "TANH": "Tanh"}[kind], [name])


def unary(writer: Writer, operator: Operator) -> None:
    """Write an operator on one tensor, in the layout that is there."""
    given, made = writer.data(operator, 0), operator.outputs[0]
    layout = writer.layout(given)
    name = writer.read(given, layout)
    kind = operator.name
    if kind in UNARY:
        found = writer.add(UNARY[kind], [name])
    elif kind == "RSQRT":
        found = writer.add("Reciprocal", [writer.add("Sqrt", [name])])
    elif kind == "SQUARE":
        found = writer.add("Mul", [name, name])
    elif kind == "LEAKY_RELU":
        found = writer.add("LeakyRelu", [name], alpha=float(operator.options.get("alpha", 0.0)))
    elif kind == "GELU":
        found = _gelu(writer, name, bool(operator.options.get("approximate")))
    else:
        found = activation(writer, kind, name)
    writer.put(made, found, layout)


def _gelu(writer: Writer, name: str, approximate: bool) -> str:
    def number(value: float) -> str:
        return writer.constant(np.array(value, np.float32))

    if approximate:
        cube = writer.add("Mul", [writer.add("Mul", [name, name]), name])
        inner = writer.add("Add", [name, writer.add("Mul", [cube, number(0.044715)])])
        bent = writer.add("Tanh", [writer.add("Mul", [inner, number(math.sqrt(2 / math.pi))])])
    else:
        bent = writer.add("Erf", [writer.add("Mul", [name, number(math.sqrt(0.5))])])
    half = writer.add("Mul", [name, number(0.5)])
    return writer.add("Mul", [half, writer.add("Add", [bent, number(1.0)])])


def binary(writer: Writer, operator: Operator) -> None:
    """Write an operator on two tensors, which are broadcast to each other."""
    first, second, made = writer.data(operator, 0), writer.data(operator, 1), operator.outputs[0]
    layout = writer.layout(first, second) if len(made.shape) == 4 else "plain"
    names = [_broadcast(writer, tensor, layout) for tensor in (first, second)]
    if operator.name == "SQUARED_DIFFERENCE":
        less = writer.add("Sub", names)
        found = writer.add("Mul", [less, less])
    elif operator.name == "PRELU":
        found = writer.add("PRelu", names)
    else:
        found = writer.add(BINARY[operator.name], names)
    writer.put(made, writer.activate(found, operator.options.get("activation", 0)), layout)


def _broadcast(writer: Writer, tensor: Tensor, layout: str) -> str:
    """Name an operand in the layout; one with fewer axes gets ones before them, as broadcasting would give it."""
    if layout != CHANNELS_FIRST or len(tensor.shape) in (0, 4) or math.prod(tensor.shape) == 1:
        return writer.read(tensor, layout if len(tensor.shape) == 4 else "plain")
    shape = (*[1] * (4 - len(tensor.shape)), *tensor.shape)
    sizes = writer.constant(np.array(shape, np.int64), "sizes")
    return writer.add("Transpose", [writer.add("Reshape", [writer.read(tensor), sizes])], perm=TO_CHANNELS_FIRST)


def softmax(writer: Writer, operator: Operator) -> None:
    """Write a softmax over the last axis."""
    given = writer.data(operator, 0)
    name = writer.read(given)
    beta = float(operator.options.get("beta", 1.0)) if operator.name == "SOFTMAX" else 1.0
    if not math.isfinite(beta):
        raise writer.error("whose factor is no number")
    if beta != 1.0:
        name = writer.add("Mul", [name, writer.constant(np.array(beta, np.float32))])
    kind = "Softmax" if operator.name == "SOFTMAX" else "LogSoftmax"
    writer.put(operator.outputs[0], writer.add(kind, [name], axis=-1))


def pass_on(writer: Writer, operator: Operator) -> None:
    """Write QUANTIZE and DEQUANTIZE: what is computed stands for its values already, and is rounded where it is put."""
    given, made = writer.data(operator, 0), operator.outputs[0]
    layout = writer.layout(given)
    name = writer.read(given, layout)
    if given.dtype == "float16":
        writer.put(made, writer.add("Cast", [name], to=helper.np_dtype_to_tensor_dtype(np.dtype("float32"))), layout)
    elif not given.has_grid and np.dtype(given.dtype).kind != "f":
        raise writer.error(f"of {given.dtype} numbers without a scale")
    else:
        writer.put(made, writer.add("Identity", [name]), layout)


def cast(writer: Writer, operator: Operator) -> None:
    """Write a change of type."""
    given, made = writer.data(operator, 0), operator.outputs[0]
    if given.has_grid or made.has_grid:
        raise writer.error("of whole numbers that stand for others")
    element = helper.np_dtype_to_tensor_dtype(np.dtype(made.dtype))
    writer.put(made, writer.add("Cast", [writer.read(given)], to=element))


RULES: Mapping[str, Callable[[Writer, Operator], None]] = {
    **dict.fromkeys((*UNARY, *CLIPS, "RELU", "RSQRT", "SQUARE", "LEAKY_RELU", "GELU"), unary),
    **dict.fromkeys((*BINARY, "SQUARED_DIFFERENCE", "PRELU"), binary),
    **dict.fromkeys(("SOFTMAX", "LOG_SOFTMAX"), softmax),
    **dict.fromkeys(("QUANTIZE", "DEQUANTIZE"), pass_on),
    "CAST": cast,
}
