"""Operators on neighbouring positions: pools, padding, resizing, and reductions over axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from arachne_tflite.file import Operator, Tensor
from arachne_tflite.translate import CHANNELS_FIRST, PLAIN, TO_CHANNELS_FIRST, Writer

SAME, VALID = 0, 1

MAX_NUMBER = 1 << 16
"""The largest filter, stride or dilation."""

REDUCTIONS = {"MEAN": "ReduceMean", "SUM": "ReduceSum", "REDUCE_MAX": "ReduceMax", "REDUCE_MIN": "ReduceMin"}


def check_positive(writer: Writer, *numbers: int) -> None:
    """Refuse strides, filters and dilations that are none."""
    if not all(0 < number < MAX_NUMBER for number in numbers):
        raise writer.error("with a size, stride or dilation that is none")


def pads_of(
    writer: Writer,
    options: Mapping[str, int],
    sizes: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> list[int]:
    """Return the zeros before and behind each axis."""
    if options.get("padding", SAME) not in (SAME, VALID):
        raise writer.error("with a padding that Arachne does not know")
    before, behind = [], []
    for size, width, stride, dilation in zip(sizes, kernel, strides, dilations, strict=True):
        span = (width - 1) * dilation + 1
        total = 0
        if options.get("padding", SAME) == SAME:
            total = max(0, (-(-size // stride) - 1) * stride + span - size)
        if size + total < span:
            raise writer.error("whose filter is larger than its input")
        before.append(total // 2)
        behind.append(total - total // 2)
    return before + behind


def pool(writer: Writer, operator: Operator) -> None:
    """Write AVERAGE_POOL_2D, which leaves zeros around the picture out, and MAX_POOL_2D."""
    given, options = writer.data(operator, 0, 4), operator.options
    kernel = [options.get("filter_h", 0), options.get("filter_w", 0)]
    strides = [options.get("stride_h", 0), options.get("stride_w", 0)]
    check_positive(writer, *kernel, *strides)
    pads = pads_of(writer, options, given.shape[1:3], kernel, strides, [1, 1])
    kind = "AveragePool" if operator.name == "AVERAGE_POOL_2D" else "MaxPool"
    found = writer.add(kind, [writer.read(given, CHANNELS_FIRST)], kernel_shape=kernel, strides=strides, pads=pads)
    writer.put(operator.outputs[0], writer.activate(found, options.get("activation", 0)), CHANNELS_FIRST)


def pad(writer: Writer, operator: Operator) -> None:
    """Write PAD, PADV2 and MIRROR_PAD; zeros around a picture become those of the convolution that takes it."""
    given, made = writer.data(operator, 0), operator.outputs[0]
    pairs = np.array(writer.numbers(operator, 1)).reshape(-1, 2)
    if len(pairs) != len(given.shape) or (pairs < 0).any() or (pairs >= MAX_NUMBER).any():
        raise writer.error("with sizes that fit no axis of its input")
    value = 0.0
    if operator.name == "PADV2":
        stored = writer.data(operator, 2)
        if stored.values is None or stored.values.size != 1:
            raise writer.error("with a computed value")
        value = float(stored.values.reshape(())) if stored.grid is None else _grid_value(stored)
    if operator.name == "MIRROR_PAD" and operator.options.get("mode", 0) != 0:
        raise writer.error("that repeats the edge, which ONNX has not")
    if value == 0 and operator.name != "MIRROR_PAD" and _goes_into_convolutions(writer, made, pairs):
        writer.padded[made.index] = given, [*pairs[1:3, 0].tolist(), *pairs[1:3, 1].tolist()]
        return
    layout = writer.layout(given) if len(given.shape) == 4 else PLAIN
    if layout == CHANNELS_FIRST:
        pairs = pairs[list(TO_CHANNELS_FIRST)]
    sizes = writer.constant(pairs.T.reshape(-1).astype(np.int64), "sizes")
    filling = [] if value == 0 else [writer.constant(np.array(value, np.float32))]
    mode = "reflect" if operator.name == "MIRROR_PAD" else "constant"
    writer.put(made, writer.add("Pad", [writer.read(given, layout), sizes, *filling], mode=mode), layout)


def _grid_value(tensor: Tensor) -> float:
    if tensor.values is None or tensor.grid is None:
        raise ValueError("the tensor is computed")
    return float((tensor.values.reshape(-1)[0] - np.int64(tensor.grid.zero[0])) * tensor.grid.scale[0])


def _goes_into_convolutions(
    writer: Writer, made: Tensor, pairs: np.ndarray[tuple[int, ...], np.dtype[np.int64]]
) -> bool:
    takers = writer.takers.get(made.index, [])
    fits = len(pairs) == 4 and not pairs[[0, 3]].any() and made.index not in writer.outputs
    return (
        fits
        and bool(takers)
        and all(
            one.name in ("CONV_2D", "DEPTHWISE_CONV_2D")
            and one.inputs[0] is made
            and one.options.get("padding", SAME) == VALID
            for one in takers
        )
    )


def reduce(writer: Writer, operator: Operator) -> None:
    """Write a mean, a sum or a largest value over axes."""
    given, made = writer.data(operator, 0), operator.outputs[0]
    rank = len(given.shape)
    axes = sorted({writer.axis(axis, rank) for axis in writer.numbers(operator, 1)})
    keep = bool(operator.options.get("keep_dims"))
    layout = writer.layout(given) if rank == 4 else PLAIN
    name = writer.read(given, layout)
    if operator.name == "MEAN" and axes == [1, 2] and layout == CHANNELS_FIRST:
        found = writer.add("GlobalAveragePool", [name])
        if not keep:
            found = writer.add("Reshape", [found, writer.constant(np.array([0, -1], np.int64), "sizes")])
        writer.put(made, found, layout if keep else PLAIN)
        return
    if layout == CHANNELS_FIRST and not keep:
        layout, name = PLAIN, writer.read(given)
    if layout == CHANNELS_FIRST:
        axes = [TO_CHANNELS_FIRST.index(axis) for axis in axes]
    over = writer.constant(np.array(axes, np.int64), "axes")
    writer.put(made, writer.add(REDUCTIONS[operator.name], [name, over], keepdims=int(keep)), layout)


def resize(writer: Writer, operator: Operator) -> None:
    """Write RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR."""
    given, made = writer.data(operator, 0, 4), operator.outputs[0]
    sizes = writer.numbers(operator, 1)
    if len(sizes) != 2:
        raise writer.error("with sizes that fit no picture")
    check_positive(writer, *sizes)
    aligned, centred = bool(operator.options.get("align_corners")), bool(operator.options.get("half_pixel_centers"))
    nearest = operator.name == "RESIZE_NEAREST_NEIGHBOR"
    options: dict[str, Any] = {"mode": "nearest" if nearest else "linear"}
    if nearest:
        options["nearest_mode"] = "round_prefer_ceil" if aligned or centred else "floor"
    options["coordinate_transformation_mode"] = (
        "align_corners" if aligned else "half_pixel" if centred else "asymmetric"
    )
    scales = [1.0, 1.0, *(new / old for new, old in zip(sizes, given.shape[1:3], strict=True))]
    inputs = [writer.read(given, CHANNELS_FIRST), "", writer.constant(np.array(scales, np.float32), "scales")]
    writer.put(made, writer.add("Resize", inputs, **options), CHANNELS_FIRST)


def blocks(writer: Writer, operator: Operator) -> None:
    """Write DEPTH_TO_SPACE and SPACE_TO_DEPTH."""
    given, size = writer.data(operator, 0, 4), operator.options.get("block_size", 0)
    check_positive(writer, size)
    kind = "DepthToSpace" if operator.name == "DEPTH_TO_SPACE" else "SpaceToDepth"
    found = writer.add(kind, [writer.read(given, CHANNELS_FIRST)], blocksize=size)
    writer.put(operator.outputs[0], found, CHANNELS_FIRST)


RULES: Mapping[str, Callable[[Writer, Operator], None]] = {
    **dict.fromkeys(("AVERAGE_POOL_2D", "MAX_POOL_2D"), pool),
    **dict.fromkeys(("PAD", "PADV2", "MIRROR_PAD"), pad),
    **dict.fromkeys(REDUCTIONS, reduce),
    **dict.fromkeys(("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"), resize),
    **dict.fromkeys(("DEPTH_TO_SPACE", "SPACE_TO_DEPTH"), blocks),
}
