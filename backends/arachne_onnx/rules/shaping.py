"""Rules for operators that only move numbers: reshape, slice, pad, gather, scatter."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from onnx import TensorProto

from arachne_onnx.rules.tape import BackwardStep, Tape, Thunk, input_rule, rule


@input_rule("Reshape", "Flatten", "Squeeze", "Unsqueeze")
def reshape(tape: Tape, step: BackwardStep) -> str:
    """Back to the shape it had."""
    return tape.op("Reshape", step.gradient, tape.op("Shape", step.inputs[0]))


@input_rule("Transpose")
def transpose(tape: Tape, step: BackwardStep) -> str:
    """The inverse permutation; without one the order is reversed, and that undoes itself."""
    perm = step.get("perm")
    inverse = None if perm is None else [int(axis) for axis in np.argsort(perm)]
    return tape.op("Transpose", step.gradient, perm=inverse)


@rule("Concat")
def concat(tape: Tape, step: BackwardStep) -> Sequence[Thunk | None]:
    """Cut into the pieces it was put together from."""
    axis = step.get("axis")
    pieces: list[str] = []

    def piece(index: int) -> str:
        if not pieces:
            sizes = [_size(tape, name, axis) for name in step.inputs]
            if len(sizes) == 1:
                pieces.append(step.gradient)
            else:
                lengths = tape.op("Concat", *sizes, axis=0)
                pieces.extend(tape.ops("Split", step.gradient, lengths, outputs=len(sizes), axis=axis))
        return pieces[index]

    return [partial(piece, index) for index in range(len(step.inputs))]


@input_rule("Split")
def split(tape: Tape, step: BackwardStep) -> str:
    """The gradients of the pieces, joined; pieces that are not used have zeros."""
    pieces = [
        gradient or tape.zeros(output, step.inputs[0])
        for gradient, output in zip(step.gradients, step.outputs, strict=True)
    ]
    return tape.op("Concat", *pieces, axis=step.get("axis", 0))


@input_rule("Slice")
def slice_(tape: Tape, step: BackwardStep) -> str:
    """Padded with zeros if all steps are 1, else scattered."""
    x = step.inputs[0]
    starts, axes, steps = (tape.value(step.input(index)) for index in (1, 3, 4))
    plain = step.input(4) is None or (steps is not None and bool(np.all(steps == 1)))
    if starts is None or not plain or (step.input(3) is not None and axes is None):
        positions = tape.op("Slice", tape.positions(x), *step.inputs[1:])
        return tape.scatter_flat(x, positions, step.gradient)
    chosen = [int(axis) for axis in (range(len(starts)) if axes is None else axes)]
    begins = []
    for start, axis in zip(starts.tolist(), chosen, strict=True):
        if start >= 0:
            begins.append(tape.op("Min", tape.constant([start]), _size(tape, x, axis)))
        else:
            begins.append(
                tape.op("Max", tape.op("Add", _size(tape, x, axis), tape.constant([start])), tape.constant([0]))
            )
    ends = [
        tape.op("Sub", tape.op("Sub", _size(tape, x, axis), _size(tape, step.gradient, axis)), begin)
        for axis, begin in zip(chosen, begins, strict=True)
    ]
    pads = tape.op("Concat", *begins, *ends, axis=0)
    return tape.op("Pad", step.gradient, pads, tape.number(0, x), tape.constant(chosen))


@input_rule("Pad")
def pad(tape: Tape, step: BackwardStep) -> str:
    """Cropped; a border that repeats values adds its gradient to those values."""
    x, pads, axes = step.inputs[0], step.inputs[1], step.input(3)
    if step.get("mode", "constant") == "constant":
        return tape.op("Pad", step.gradient, tape.op("Neg", pads), tape.number(0, x), axes)
    positions = tape.op("Pad", tape.positions(x), pads, None, axes, mode=step.get("mode"))
    return tape.scatter_flat(x, positions, step.gradient)


@input_rule("Expand")
def expand(tape: Tape, step: BackwardStep) -> str:
    """Summed over the repeated axes."""
    return tape.sum_to(step.gradient, step.inputs[0], step.outputs[0])


@input_rule("Tile")
def tile(tape: Tape, step: BackwardStep) -> str:
    """Summed over the copies."""
    x, repeats = step.inputs
    rank = tape.rank(x)
    pairs = tape.op(
        "Concat",
        tape.op("Unsqueeze", repeats, tape.constant([1])),
        tape.op("Unsqueeze", tape.op("Shape", x), tape.constant([1])),
        axis=1,
    )
    apart = tape.op("Reshape", step.gradient, tape.op("Reshape", pairs, tape.constant([-1])))
    return tape.op("ReduceSum", apart, tape.constant(range(0, 2 * rank, 2)), keepdims=0)


@input_rule("Gather")
def gather(tape: Tape, step: BackwardStep) -> str:
    """Each gradient added to the row it was taken from."""
    data, indices = step.inputs
    axis = step.get("axis", 0)
    rank = tape.rank(data)
    axis_ = axis % rank
    front = tape.op("Shape", data, end=axis_)
    back = tape.op("Shape", data, start=axis_ + 1)
    # ScatterND takes only 64-bit indices.
    flat = tape.op("Cast", tape.op("Reshape", indices, tape.constant([-1])), to=TensorProto.INT64)
    g = tape.op("Reshape", step.gradient, tape.op("Concat", front, tape.op("Shape", flat), back, axis=0))
    order = [axis_, *(other for other in range(rank) if other != axis_)]
    if axis_:
        g = tape.op("Transpose", g, perm=order)
    empty = tape.op(
        "Expand",
        tape.number(0, data),
        tape.op("Concat", tape.op("Shape", data, start=axis_, end=axis_ + 1), front, back, axis=0),
    )
    positions = tape.op("Unsqueeze", flat, tape.constant([1]))
    filled = tape.op("ScatterND", empty, positions, g, reduction="add")
    return tape.op("Transpose", filled, perm=[int(i) for i in np.argsort(order)]) if axis_ else filled


@input_rule("GatherElements")
def gather_elements(tape: Tape, step: BackwardStep) -> str:
    """Each gradient added to the element it was taken from."""
    data, indices = step.inputs
    return tape.op(
        "ScatterElements", tape.zeros(data), indices, step.gradient, axis=step.get("axis", 0), reduction="add"
    )


@input_rule("GatherND")
def gather_nd(tape: Tape, step: BackwardStep) -> str:
    """Each gradient added to the position it was taken from."""
    data, indices = step.inputs
    batch = step.get("batch_dims", 0)
    if not batch:
        return tape.op("ScatterND", tape.zeros(data), indices, step.gradient, reduction="add")
    positions = tape.op("GatherND", tape.positions(data), indices, batch_dims=batch)
    return tape.scatter_flat(data, positions, step.gradient)


@rule("ScatterND", "ScatterElements")
def scatter(tape: Tape, step: BackwardStep) -> Sequence[Thunk | None]:
    """Overwritten elements get no gradient; the values written there get it."""
    indices, updates = step.inputs[1:]
    operator, kind = step.node.op_type, step.get("reduction", "none")
    if kind not in ("none", "add"):
        raise NotImplementedError(f"{operator} with reduction '{kind}'")
    axis = step.get("axis", 0) if operator == "ScatterElements" else None

    def data() -> str:
        if kind == "add":
            return step.gradient
        return tape.op(operator, step.gradient, indices, tape.zeros(updates), axis=axis)

    return [data, None, lambda: tape.op(operator.replace("Scatter", "Gather"), step.gradient, indices, axis=axis)]


@input_rule("TopK")
def top_k(tape: Tape, step: BackwardStep) -> str:
    """Back to the positions the values came from."""
    x = step.inputs[0]
    return tape.op(
        "ScatterElements", tape.zeros(x), step.outputs[1], step.gradient, axis=step.get("axis", -1), reduction="add"
    )


@input_rule("DepthToSpace", "SpaceToDepth", "ReverseSequence", "Trilu")
def rearrange(tape: Tape, step: BackwardStep) -> str:
    """The inverse rearrangement."""
    operator = step.node.op_type
    if operator == "SpaceToDepth":
        return tape.op("DepthToSpace", step.gradient, blocksize=step.get("blocksize"), mode="DCR")
    if operator == "DepthToSpace":
        if step.get("mode", "DCR") == "DCR":
            return tape.op("SpaceToDepth", step.gradient, blocksize=step.get("blocksize"))
        positions = tape.op("DepthToSpace", tape.positions(step.inputs[0], floating=True), **step.attributes)
        return tape.scatter_flat(step.inputs[0], tape.op("Cast", positions, to=TensorProto.INT64), step.gradient)
    return tape.op(operator, step.gradient, *step.inputs[1:], **step.attributes)


def _size(tape: Tape, name: str, axis: int) -> str:
    """The size of one axis as a tensor of one element."""
    return tape.op("Shape", name, start=axis, end=axis + 1 if axis != -1 else None)
