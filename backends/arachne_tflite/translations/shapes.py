"""Operators that move numbers: shapes, axes, parts and wholes; the first size stays free if it is that of the batch."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from arachne_tflite.file import Operator
from arachne_tflite.translate import CHANNELS_FIRST, PLAIN, TO_CHANNELS_FIRST, TO_PLAIN, Writer


def reshape(writer: Writer, operator: Operator) -> None:
    """Write RESHAPE, SQUEEZE and EXPAND_DIMS, all by the shape that the file says comes out."""
    given, made = writer.data(operator, 0), operator.outputs[0]
    if math.prod(given.shape) != math.prod(made.shape):
        raise writer.error(f"that makes {made.shape} of {given.shape}")
    writer.put(made, to_shape(writer, writer.read(given), given.shape, made.shape))


def to_shape(writer: Writer, name: str, before: Sequence[int], after: Sequence[int]) -> str:
    """Add a reshape; the first size is left to what the others leave over."""
    sizes = list(after)
    if sizes:
        sizes[0] = 0 if before and before[0] == after[0] else -1
    return writer.add("Reshape", [name, writer.constant(np.array(sizes, np.int64), "sizes")])


def transpose(writer: Writer, operator: Operator) -> None:
    """Write TRANSPOSE; one that only changes the layout is the other layout of its input."""
    given, made = writer.data(operator, 0), operator.outputs[0]
    axes = [writer.axis(axis, len(given.shape)) for axis in writer.numbers(operator, 1)]
    if sorted(axes) != list(range(len(given.shape))):
        raise writer.error("of axes that are not those of its input")
    if tuple(axes) == TO_CHANNELS_FIRST and writer.layout(given) == CHANNELS_FIRST:
        writer.alias(made, writer.read(given, CHANNELS_FIRST), PLAIN)
    elif tuple(axes) == TO_PLAIN:
        writer.alias(made, writer.read(given), CHANNELS_FIRST)
    else:
        writer.put(made, writer.add("Transpose", [writer.read(given)], perm=axes))


def concatenate(writer: Writer, operator: Operator) -> None:
    """Write CONCATENATION."""
    given = [writer.data(operator, index) for index in range(len(operator.inputs))]
    made = operator.outputs[0]
    axis = writer.axis(operator.options.get("axis", 0), len(made.shape))
    layout = writer.layout(*given) if len(made.shape) == 4 else PLAIN
    if layout == CHANNELS_FIRST:
        axis = TO_CHANNELS_FIRST.index(axis)
    found = writer.add("Concat", [writer.read(tensor, layout) for tensor in given], axis=axis)
    writer.put(made, writer.activate(found, operator.options.get("activation", 0)), layout)


def pack(writer: Writer, operator: Operator) -> None:
    """Write PACK: tensors side by side along a new axis."""
    made = operator.outputs[0]
    axis = writer.axis(operator.options.get("axis", 0), len(made.shape))
    over = writer.constant(np.array([axis], np.int64), "axes")
    names = [
        writer.add("Unsqueeze", [writer.read(writer.data(operator, index)), over])
        for index in range(len(operator.inputs))
    ]
    writer.put(made, writer.add("Concat", names, axis=axis))


def unpack(writer: Writer, operator: Operator) -> None:
    """Write UNPACK: one tensor for each entry of an axis."""
    given = writer.data(operator, 0)
    axis = writer.axis(operator.options.get("axis", 0), len(given.shape))
    if given.shape[axis] != len(operator.outputs):
        raise writer.error(f"of {given.shape[axis]} entries into {len(operator.outputs)}")
    name = writer.read(given)
    for index, made in enumerate(operator.outputs):
        writer.put(made, writer.add("Gather", [name, writer.constant(np.array(index, np.int64), "index")], axis=axis))


def split(writer: Writer, operator: Operator) -> None:
    """Write SPLIT and SPLIT_V."""
    whole = writer.data(operator, 1 if operator.name == "SPLIT" else 0)
    (number,) = writer.numbers(operator, 0 if operator.name == "SPLIT" else 2)[:1] or [0]
    axis = writer.axis(number, len(whole.shape))
    begin, name = 0, writer.read(whole)
    for made in operator.outputs:
        if len(made.shape) != len(whole.shape):
            raise writer.error(f"of {whole.shape} into {made.shape}")
        end = begin + made.shape[axis]
        writer.put(made, _slice(writer, name, {axis: (begin, end, 1)}))
        begin = end
    if begin != whole.shape[axis]:
        raise writer.error(f"of {whole.shape[axis]} entries into {begin}")


def slice_(writer: Writer, operator: Operator) -> None:
    """Write SLICE: a part that begins somewhere and has a size, -1 for all that follows."""
    given, made = writer.data(operator, 0), operator.outputs[0]
    begins, sizes = writer.numbers(operator, 1), writer.numbers(operator, 2)
    if not len(begins) == len(sizes) == len(given.shape):
        raise writer.error("with sizes that fit no axis of its input")
    parts = {}
    for axis, (begin, size, whole) in enumerate(zip(begins, sizes, given.shape, strict=True)):
        end = whole if size == -1 else begin + size
        if not 0 <= begin <= end <= whole:
            raise writer.error("of a part that its input does not have")
        if (begin, end) != (0, whole):
            parts[axis] = begin, end, 1
    writer.put(made, _slice(writer, writer.read(given), parts))


def strided_slice(writer: Writer, operator: Operator) -> None:
    """Write STRIDED_SLICE, without new axes and ellipses."""
    given, made, options = writer.data(operator, 0), operator.outputs[0], operator.options
    begins, ends, steps = (writer.numbers(operator, index) for index in (1, 2, 3))
    if options.get("ellipsis_mask") or options.get("new_axis_mask") or options.get("offset"):
        raise writer.error("with new axes or an ellipsis, which are not read")
    if not len(begins) == len(ends) == len(steps) <= len(given.shape) or not all(steps):
        raise writer.error("with sizes that fit no axis of its input")
    parts, gone = {}, []
    for axis, (begin, end, step) in enumerate(zip(begins, ends, steps, strict=True)):
        bit, size = 1 << axis, given.shape[axis]
        if options.get("shrink_axis_mask", 0) & bit:
            begin = writer.axis(begin, size)
            parts[axis] = begin, begin + 1, 1
            gone.append(axis)
            continue
        first, last, step = slice(
            None if options.get("begin_mask", 0) & bit else begin,
            None if options.get("end_mask", 0) & bit else end,
            step,
        ).indices(size)
        if (first, last, step) != (0, size, 1):
            parts[axis] = first, last if last >= 0 else -size - 1, step
    name = _slice(writer, writer.read(given), parts)
    if gone:
        name = writer.add("Squeeze", [name, writer.constant(np.array(gone, np.int64), "axes")])
    writer.put(made, name)


def _slice(writer: Writer, name: str, parts: Mapping[int, tuple[int, int, int]]) -> str:
    """Add a slice along some axes; one of all axes does nothing."""
    if not parts:
        return writer.add("Identity", [name])
    begins, ends, steps = (np.array(numbers, np.int64) for numbers in zip(*parts.values(), strict=True))
    given = [writer.constant(numbers, "part") for numbers in (begins, ends, np.array(list(parts), np.int64), steps)]
    return writer.add("Slice", [name, *given])


def sizes_alone(writer: Writer, operator: Operator) -> None:
    """Refuse sizes that are computed with as numbers."""
    raise writer.error("whose result is not a size of something")


RULES: Mapping[str, Callable[[Writer, Operator], None]] = {
    **dict.fromkeys(("RESHAPE", "SQUEEZE", "EXPAND_DIMS"), reshape),
    "TRANSPOSE": transpose,
    "CONCATENATION": concatenate,
    "PACK": pack,
    "UNPACK": unpack,
    **dict.fromkeys(("SPLIT", "SPLIT_V"), split),
    "SLICE": slice_,
    "STRIDED_SLICE": strided_slice,
    **dict.fromkeys(("SHAPE", "REDUCE_PROD"), sizes_alone),
}
