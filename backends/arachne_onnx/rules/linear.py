"""Rules for products: matrices, convolutions, Einstein sums."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from arachne_onnx.rules.tape import BackwardStep, Tape, Thunk, UnknownShapeError, rule

WIDE, FEW_OFFSETS = 16, 27
"""From how many channels, and up to how many elements of a kernel, its gradient is a sum of matrix products."""


@rule("Gemm")
def gemm(tape: Tape, step: BackwardStep) -> Sequence[Thunk | None]:
    """Products of the gradient with the other factor."""
    a, b = step.inputs[:2]
    alpha, beta = step.get("alpha", 1.0), step.get("beta", 1.0)
    ta, tb = step.get("transA", 0), step.get("transB", 0)

    def left_gradient() -> str:
        if ta:
            return tape.op("Gemm", b, step.gradient, alpha=alpha, transA=tb, transB=1)
        return tape.op("Gemm", step.gradient, b, alpha=alpha, transB=1 - tb)

    def right_gradient() -> str:
        if tb:
            return tape.op("Gemm", step.gradient, a, alpha=alpha, transA=1, transB=ta)
        return tape.op("Gemm", a, step.gradient, alpha=alpha, transA=1 - ta)

    def bias_gradient() -> str:
        return tape.sum_to(tape.scale(step.gradient, beta, a), step.inputs[2], step.outputs[0])

    return [left_gradient, right_gradient, bias_gradient]


@rule("MatMul")
def matmul(tape: Tape, step: BackwardStep) -> Sequence[Thunk | None]:
    """Products with the other factor's transpose; a plain matrix on the right becomes one large product."""
    a, b = step.inputs
    rank_a, rank_b = tape.rank(a), tape.rank(b)
    if rank_b == 2 and rank_a >= 2:
        return [lambda: _left_of_matrix(tape, step, rank_a), lambda: _matrix(tape, step, rank_a)]

    def left_gradient() -> str:
        g = _with_axes(tape, step, rank_a, rank_b)
        other = tape.op("Unsqueeze", b, tape.constant([1])) if rank_b == 1 else b
        product = tape.op("MatMul", g, _transpose(tape, other, max(rank_b, 2)))
        return _sum_to(tape, product, a, step.outputs[0])

    def right_gradient() -> str:
        g = _with_axes(tape, step, rank_a, rank_b)
        other = tape.op("Unsqueeze", a, tape.constant([0])) if rank_a == 1 else a
        product = tape.op("MatMul", _transpose(tape, other, max(rank_a, 2)), g)
        if rank_b == 1:
            product = tape.op("Squeeze", product, tape.constant([-1]))
        return _sum_to(tape, product, b, step.outputs[0])

    return [left_gradient, right_gradient]


def _left_of_matrix(tape: Tape, step: BackwardStep, rank: int) -> str:
    a, b = step.inputs
    if rank == 2:
        return tape.op("Gemm", step.gradient, b, transB=1)
    product = tape.op("Gemm", _rows(tape, step.gradient), b, transB=1)
    return tape.op("Reshape", product, tape.op("Shape", a))


def _matrix(tape: Tape, step: BackwardStep, rank: int) -> str:
    a, g = step.inputs[0], step.gradient
    if rank > 2:
        a, g = _rows(tape, a), _rows(tape, g)
    return tape.op("Gemm", a, g, transA=1)


def _rows(tape: Tape, name: str) -> str:
    return tape.op("Flatten", name, axis=-1)


def _with_axes(tape: Tape, step: BackwardStep, rank_a: int, rank_b: int) -> str:
    g = step.gradient
    if rank_b == 1:
        g = tape.op("Unsqueeze", g, tape.constant([-1]))
    return tape.op("Unsqueeze", g, tape.constant([-2])) if rank_a == 1 else g


def _transpose(tape: Tape, name: str, rank: int) -> str:
    return tape.op("Transpose", name, perm=[*range(rank - 2), rank - 1, rank - 2])


def _sum_to(tape: Tape, product: str, target: str, output: str) -> str:
    """Undo the broadcasting of the axes in front of the matrices; known and equal ones need nothing."""
    small, full = tape.type_of(target), tape.type_of(output)
    if small is not None and full is not None and small.shape is not None and full.shape is not None:
        lead = small.shape[:-2]
        if len(small.shape) == len(full.shape) > 1 and lead == full.shape[:-2] and None not in lead:
            return product
    return tape.sum_dynamic(product, target)


@rule("Conv")
def conv(tape: Tape, step: BackwardStep) -> Sequence[Thunk | None]:
    """The input's gradient is the transposed convolution, the kernel's a convolution of input and gradient."""
    x, w = step.inputs[:2]
    shape = _kernel_shape(tape, w)
    return [
        lambda: _conv_input(tape, step, shape[2:]),
        lambda: _conv_kernel(tape, step, x, step.gradient, shape),
        lambda: tape.op("ReduceSum", step.gradient, tape.constant([0, *range(2, len(shape))]), keepdims=0),
    ]


@rule("ConvTranspose")
def conv_transpose(tape: Tape, step: BackwardStep) -> Sequence[Thunk | None]:
    """The convolution it is the transpose of, and that one's kernel gradient with the roles exchanged."""
    x, w = step.inputs[:2]
    shape = _kernel_shape(tape, w)
    return [
        lambda: tape.op("Conv", step.gradient, w, **_geometry(step, len(shape) - 2)),
        lambda: _conv_kernel(tape, step, step.gradient, x, shape),
        lambda: tape.op("ReduceSum", step.gradient, tape.constant([0, *range(2, len(shape))]), keepdims=0),
    ]


def _kernel_shape(tape: Tape, w: str) -> tuple[int, ...]:
    shape = tape.shape(w)
    if min(shape[2:]) < 0:
        raise UnknownShapeError(w)
    return shape


def _geometry(step: BackwardStep, axes: int) -> dict[str, Any]:
    if step.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        raise UnknownShapeError(step.inputs[0])
    return {
        "strides": step.get("strides", [1] * axes),
        "dilations": step.get("dilations", [1] * axes),
        "pads": step.get("pads", [0] * 2 * axes),
        "group": step.get("group", 1),
    }


def _conv_input(tape: Tape, step: BackwardStep, kernel: tuple[int, ...]) -> str:
    """Gradient of the input of a convolution; a plain one where that is possible, because it is faster."""
    x, w = step.inputs[:2]
    axes = len(kernel)
    options = _geometry(step, axes)
    pads, spans = options["pads"], [d * (k - 1) for d, k in zip(options["dilations"], kernel, strict=True)]
    spatial = list(range(2, axes + 2))
    if (
        options["group"] == 1
        and set(options["strides"]) == {1}
        and all(p <= s for p, s in zip(pads, spans * 2, strict=True))
    ):
        turned = tape.op("Transpose", w, perm=[1, 0, *spatial])
        if max(kernel) > 1:
            ends = (tape.constant([-1] * axes), tape.constant([-(1 << 31)] * axes), tape.constant(spatial))
            turned = tape.op("Slice", turned, *ends, tape.constant([-1] * axes))
        rest = [span - pad for pad, span in zip(pads, spans * 2, strict=True)]
        return tape.op("Conv", step.gradient, turned, pads=rest, dilations=options["dilations"])
    left_over = _left_over(tape, step, kernel)
    if left_over is not None:
        return tape.op("ConvTranspose", step.gradient, w, **options, output_padding=left_over)
    full = tape.op("ConvTranspose", step.gradient, w, **{**options, "pads": [0] * 2 * axes})
    # Crop the padding in front, and crop or fill up what a stride that does not divide left at the end.
    sizes, have = tape.op("Shape", x, start=2), tape.op("Shape", full, start=2)
    end = tape.op("Sub", tape.op("Add", sizes, tape.constant(pads[:axes])), have)
    crop = tape.op("Concat", tape.constant([-size for size in pads[:axes]]), end, axis=0)
    return tape.op("Pad", full, crop, tape.number(0, x), tape.constant(spatial))


def _left_over(tape: Tape, step: BackwardStep, kernel: tuple[int, ...]) -> list[int] | None:
    """Return the elements of each input axis behind the last window; None for unknown sizes."""
    kind = tape.type_of(step.inputs[0])
    if kind is None or kind.shape is None:
        return None
    axes = len(kernel)
    options = _geometry(step, axes)
    found = []
    for axis, size in enumerate(kind.shape[2:]):
        if not isinstance(size, int):
            return None
        room = size + options["pads"][axis] + options["pads"][axes + axis]
        found.append((room - options["dilations"][axis] * (kernel[axis] - 1) - 1) % options["strides"][axis])
    return found


def _conv_kernel(tape: Tape, step: BackwardStep, x: str, g: str, shape: tuple[int, ...]) -> str:
    """Gradient of a kernel `(out, in / groups, *kernel)`: the gradient slides over the input.

    Channels become inputs and inputs channels, strides and dilations change places.
    """
    axes, group = len(shape) - 2, step.get("group", 1)
    if group == 1 and shape[1] >= WIDE and math.prod(shape[2:]) <= FEW_OFFSETS:
        return _kernel_by_products(tape, step, x, g, shape)
    options = _geometry(step, axes)
    spatial = list(range(2, axes + 2))
    if group == 1:
        moved = tape.op("Transpose", x, perm=[1, 0, *spatial])
    else:
        split = tape.op("Concat", tape.constant([0, group, -1]), tape.op("Shape", x, start=2), axis=0)
        parts = tape.op("Transpose", tape.op("Reshape", x, split), perm=[2, 1, 0, *(axis + 1 for axis in spatial)])
        joined = tape.op("Concat", tape.constant([0, -1]), tape.op("Shape", x, start=2), axis=0)
        moved = tape.op("Reshape", parts, joined)
    seen = tape.op(
        "Conv",
        moved,
        tape.op("Transpose", g, perm=[1, 0, *spatial]),
        strides=options["dilations"],
        dilations=options["strides"],
        pads=options["pads"],
        group=group,
    )
    kernel = seen
    if set(options["strides"]) != {1} or any(step.get("output_padding", [])):  # windows that reach too far see more
        kernel = tape.op("Slice", seen, tape.constant([0] * axes), tape.constant(shape[2:]), tape.constant(spatial))
    return tape.op("Transpose", kernel, perm=[1, 0, *spatial])


def _kernel_by_products(tape: Tape, step: BackwardStep, x: str, g: str, shape: tuple[int, ...]) -> str:
    """Gradient of a kernel as one matrix product per kernel element, which is faster for many channels."""
    axes = len(shape) - 2
    options = _geometry(step, axes)
    spatial, strides = list(range(2, axes + 2)), options["strides"]
    if any(options["pads"]):
        x = tape.op("Pad", x, tape.constant(options["pads"]), tape.number(0, step.inputs[0]), tape.constant(spatial))
    x = tape.op("Transpose", x, perm=[1, 0, *spatial])
    rows = tape.op("Reshape", tape.op("Transpose", g, perm=[1, 0, *spatial]), tape.constant([shape[0], -1]))
    # What one element of the kernel sees: from its offset, in steps of the stride, as many positions as there are.
    reach = tape.op("Sub", tape.op("Shape", g, start=2), tape.constant([1] * axes))
    reach = tape.op("Add", tape.op("Mul", reach, tape.constant(strides)), tape.constant([1] * axes))
    products = []
    for number in np.ndindex(*shape[2:]):
        offset = tape.constant(
            [number * dilation for number, dilation in zip(number, options["dilations"], strict=True)]
        )
        ends = tape.op("Add", reach, offset)
        seen = tape.op("Slice", x, offset, ends, tape.constant(spatial), tape.constant(strides))
        seen = tape.op("Reshape", seen, tape.constant([shape[1], -1]))
        products.append(tape.op("Gemm", rows, seen, transB=1))
    side_by_side = products[0] if len(products) == 1 else tape.op("Concat", *products, axis=1)
    stacked = tape.op("Reshape", side_by_side, tape.constant([shape[0], len(products), shape[1]]))
    return tape.op("Reshape", tape.op("Transpose", stacked, perm=[0, 2, 1]), tape.constant(shape))


@rule("Einsum")
def einsum(tape: Tape, step: BackwardStep) -> Sequence[Thunk | None]:
    """An Einstein sum in which the gradient replaces the factor."""
    terms, output = _terms(tape, step)

    def factor(index: int) -> str:
        others = [name for number, name in enumerate(step.inputs) if number != index]
        letters = [term for number, term in enumerate(terms) if number != index]
        reachable = set(output).union(*letters)
        kept = "".join(letter for letter in terms[index] if letter in reachable)
        found = tape.op("Einsum", step.gradient, *others, equation=",".join([output, *letters]) + "->" + kept)
        if kept == terms[index]:
            return tape.op("Reshape", found, tape.op("Shape", step.inputs[index]))
        lost = [axis for axis, letter in enumerate(terms[index]) if letter not in reachable]
        spread = tape.op("Unsqueeze", found, tape.constant(lost))
        return tape.op("Expand", spread, tape.op("Shape", step.inputs[index]))

    return [partial(factor, index) for index in range(len(step.inputs))]


def _terms(tape: Tape, step: BackwardStep) -> tuple[list[str], str]:
    """The subscripts of every factor and of the result, ellipses spelt out, an implicit result made explicit."""
    left_side, arrow, output = step.get("equation").replace(" ", "").partition("->")
    terms = left_side.split(",")
    if not arrow:
        letters = [letter for letter in left_side.replace(",", "") if letter != "."]
        output = ("..." if "..." in left_side else "") + "".join(
            sorted(c for c in set(letters) if letters.count(c) == 1)
        )
    if any(len(set(term.replace(".", ""))) < len(term.replace(".", "")) for term in terms):
        raise NotImplementedError("Einsum with a repeated index in one factor")
    if "..." not in left_side:
        return terms, output
    free = [letter for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ" if letter not in left_side + output]
    widths = [
        tape.rank(name) - len(term.replace(".", ""))
        for name, term in zip(step.inputs, terms, strict=True)
        if "..." in term
    ]
    if len(set(widths)) > 1:
        raise NotImplementedError("Einsum with ellipses of different widths")
    spelt = "".join(free[: widths[0]])
    return [term.replace("...", spelt) for term in terms], output.replace("...", spelt)
