"""Operators that multiply with weights: convolutions, fully connected layers, tables of rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from arachne_tflite.file import Operator, Tensor
from arachne_tflite.names import layer_name
from arachne_tflite.translate import CHANNELS_FIRST, Writer
from arachne_tflite.translations.windows import check_positive, pads_of

OUTPUTS_FIRST, LAST_FIRST = (0, 3, 1, 2), (3, 0, 1, 2)
"""How stored filters `(out, height, width, in)` and `(1, height, width, out)` become ONNX ones."""


def name_of(operator: Operator, weight: int) -> str:
    """Name the layer of an operator."""
    tensors = [operator.inputs[weight], *operator.outputs]
    return layer_name(operator.name, [tensor.name for tensor in tensors if tensor is not None])


def bias_of(writer: Writer, operator: Operator, index: int, size: int, name: str) -> list[str]:
    """Name the bias of an operator; none where it has none."""
    tensor = writer.optional(operator, index)
    if tensor is None:
        return []
    if tensor.shape != (size,):
        raise writer.error(f"with a bias of shape {tensor.shape} for {size} outputs")
    if tensor.dtype == "float32" or tensor.grid is not None:
        return [writer.read(tensor, stem=f"{name}.bias")]
    given, weight = operator.inputs[0], operator.inputs[1]
    if operator.name == "TRANSPOSE_CONV":
        given = operator.inputs[2]
    if given is None or weight is None or given.grid is None or weight.grid is None or tensor.dtype != "int32":
        raise writer.error(f"with a bias of {tensor.dtype} numbers without a scale")
    scale = np.float32(1) * given.grid.scale * weight.grid.scale
    return [writer.dequantise(tensor, writer.store(tensor, f"{name}.bias"), scale)]


def filters(writer: Writer, tensor: Tensor, permutation: Sequence[int], name: str) -> str:
    """Name the filters of a convolution as ONNX has them."""
    return writer.add("Transpose", [writer.read(tensor, stem=f"{name}.weight")], perm=permutation)


def convolution(writer: Writer, operator: Operator) -> None:
    """Write CONV_2D and DEPTHWISE_CONV_2D."""
    given, weight, made = writer.data(operator, 0, 4), writer.data(operator, 1, 4), operator.outputs[0]
    options, name = operator.options, name_of(operator, 1)
    if given.index in writer.padded:
        given, around = writer.padded[given.index]
    else:
        around = []
    channels = given.shape[3]
    if operator.name == "DEPTHWISE_CONV_2D":
        size, groups, inner, permutation = weight.shape[3], channels, 1, LAST_FIRST
        if weight.shape[0] != 1 or not channels or size != channels * options.get("multiplier", 0):
            raise writer.error(f"whose filters {weight.shape} do not fit {channels} channels")
    else:
        size, inner, permutation = weight.shape[0], weight.shape[3], OUTPUTS_FIRST
        groups = channels // max(inner, 1)
        if not inner or groups * inner != channels or size % groups:
            raise writer.error(f"whose filters {weight.shape} do not fit {channels} channels")
    kernel = weight.shape[1:3]
    strides, dilations = _pair(options, "stride", 0), _pair(options, "dilation", 1)
    check_positive(writer, *kernel, *strides, *dilations)
    around = around or pads_of(writer, options, given.shape[1:3], kernel, strides, dilations)
    inputs = [writer.read(given, CHANNELS_FIRST), filters(writer, weight, permutation, name)]
    inputs += bias_of(writer, operator, 2, size, name)
    found = writer.add(
        "Conv", inputs, kernel_shape=kernel, strides=strides, dilations=dilations, pads=around, group=groups
    )
    writer.put(made, writer.activate(found, options.get("activation", 0)), CHANNELS_FIRST)


def transposed_convolution(writer: Writer, operator: Operator) -> None:
    """Write TRANSPOSE_CONV."""
    weight, given, made = writer.data(operator, 1, 4), writer.data(operator, 2, 4), operator.outputs[0]
    options, name, kernel = operator.options, name_of(operator, 1), weight.shape[1:3]
    strides = _pair(options, "stride", 0)
    check_positive(writer, *kernel, *strides)
    if weight.shape[3] != given.shape[3] or len(made.shape) != 4 or writer.numbers(operator, 0) != list(made.shape):
        raise writer.error(f"whose filters {weight.shape} do not fit its input {given.shape} or output {made.shape}")
    before, behind, more = [], [], []
    for size, wanted, width, stride in zip(given.shape[1:3], made.shape[1:3], kernel, strides, strict=True):
        whole = (size - 1) * stride + width
        cut = max(whole - wanted, 0) if options.get("padding", 0) == 0 else 0
        before.append(cut // 2)
        behind.append(cut - cut // 2)
        more.append(wanted - whole + cut)
        if not 0 <= more[-1] < stride:
            raise writer.error(f"that makes {made.shape} of {given.shape}, which no filter does")
    inputs = [writer.read(given, CHANNELS_FIRST), filters(writer, weight, LAST_FIRST, name)]
    inputs += bias_of(writer, operator, 3, weight.shape[0], name)
    found = writer.add(
        "ConvTranspose", inputs, kernel_shape=kernel, strides=strides, pads=before + behind, output_padding=more
    )
    writer.put(made, writer.activate(found, options.get("activation", 0)), CHANNELS_FIRST)


def fully_connected(writer: Writer, operator: Operator) -> None:
    """Write FULLY_CONNECTED: over the last axis, or over all but the first."""
    given, weight, made = writer.data(operator, 0), writer.data(operator, 1, 2), operator.outputs[0]
    options, name = operator.options, name_of(operator, 1)
    if options.get("weights_format", 0):
        raise writer.error("with shuffled weights, which are not read")
    size, inner = weight.shape
    source, table = writer.read(given), writer.read(weight, stem=f"{name}.weight")
    bias = bias_of(writer, operator, 2, size, name)
    if len(made.shape) > 2:
        if given.shape[-1:] != (inner,):
            raise writer.error(f"whose weights {weight.shape} do not fit its input {given.shape}")
        found = writer.add("MatMul", [source, writer.add("Transpose", [table], perm=(1, 0))])
        found = writer.add("Add", [found, *bias]) if bias else found
    else:
        if not inner or int(np.prod(given.shape)) % inner:
            raise writer.error(f"whose weights {weight.shape} do not fit its input {given.shape}")
        if len(given.shape) != 2 or given.shape[1] != inner:
            source = writer.add("Reshape", [source, writer.constant(np.array([-1, inner], np.int64), "sizes")])
        found = writer.add("Gemm", [source, table, *bias], transB=1)
    writer.put(made, writer.activate(found, options.get("activation", 0)))


def batch_product(writer: Writer, operator: Operator) -> None:
    """Write BATCH_MATMUL."""
    names = []
    for index, option in enumerate(("adj_x", "adj_y")):
        tensor = writer.data(operator, index)
        name, axes = writer.read(tensor), list(range(len(tensor.shape)))
        if operator.options.get(option):
            name = writer.add("Transpose", [name], perm=[*axes[:-2], *axes[:-3:-1]])
        names.append(name)
    writer.put(operator.outputs[0], writer.add("MatMul", names))


def gather(writer: Writer, operator: Operator) -> None:
    """Write GATHER and EMBEDDING_LOOKUP."""
    first = 0 if operator.name == "GATHER" else 1
    table, rows = writer.data(operator, first), writer.data(operator, 1 - first)
    if operator.options.get("batch_dims") or rows.dtype not in ("int32", "int64") or not table.shape:
        raise writer.error("by batches, or by numbers that are not whole")
    axis = writer.axis(operator.options.get("axis", 0), len(table.shape))
    if (
        rows.values is not None
        and rows.values.size
        and not 0 <= rows.values.min() <= rows.values.max() < table.shape[axis]
    ):
        raise writer.error("of rows that its table does not have")
    name = f"{name_of(operator, first)}.weight"
    inputs = [writer.read(table, stem=name), writer.read(rows)]
    writer.put(operator.outputs[0], writer.add("Gather", inputs, axis=axis))


def _pair(options: Mapping[str, int], what: str, default: int) -> list[int]:
    return [options.get(f"{what}_h", default), options.get(f"{what}_w", default)]


RULES: Mapping[str, Callable[[Writer, Operator], None]] = {
    **dict.fromkeys(("CONV_2D", "DEPTHWISE_CONV_2D"), convolution),
    "TRANSPOSE_CONV": transposed_convolution,
    "FULLY_CONNECTED": fully_connected,
    "BATCH_MATMUL": batch_product,
    **dict.fromkeys(("GATHER", "EMBEDDING_LOOKUP"), gather),
}
