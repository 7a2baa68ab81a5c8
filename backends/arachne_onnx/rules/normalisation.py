"""Rules for normalisation layers."""

from __future__ import annotations

from collections.abc import Sequence

from arachne_onnx.rules.tape import BackwardStep, Tape, Thunk, input_rule, rule


@rule("BatchNormalization")
def batch_normalization(tape: Tape, step: BackwardStep) -> Sequence[Thunk | None]:
    """At inference a fixed scale and shift per channel."""
    x, scale, _, mean, variance = step.inputs[:5]
    rank = tape.rank(x)
    others = tape.constant([axis for axis in range(rank) if axis != 1])
    column = tape.constant([-1, *[1] * (rank - 2)])

    def deviation() -> str:
        return tape.op("Sqrt", tape.op("Add", variance, tape.number(step.get("epsilon", 1e-5), variance)))

    def of_input() -> str:
        factor = tape.op("CastLike", tape.op("Div", scale, deviation()), x)
        return tape.op("Mul", step.gradient, tape.op("Reshape", factor, column))

    def of_scale() -> str:
        centred = tape.op("Sub", x, tape.op("Reshape", mean, column))
        summed = tape.op("ReduceSum", tape.op("Mul", step.gradient, centred), others, keepdims=0)
        return tape.op("Div", summed, deviation())

    def of_shift() -> str:
        return tape.op("ReduceSum", step.gradient, others, keepdims=0)

    return [of_input, of_scale, of_shift, None, None]


@rule("InstanceNormalization")
def instance_normalization(tape: Tape, step: BackwardStep) -> Sequence[Thunk | None]:
    """Normalised over the positions of each channel of each input."""
    x, scale = step.inputs[:2]
    rank = tape.rank(x)
    axes = tape.constant(range(2, rank))
    others = tape.constant([axis for axis in range(rank) if axis != 1])
    column = tape.constant([-1, *[1] * (rank - 2)])

    def of_input() -> str:
        g = tape.op("Mul", step.gradient, tape.op("Reshape", scale, column))
        return _through(tape, step, g, axes)

    def of_scale() -> str:
        normal, _ = _standardise(tape, step, axes)
        return tape.op("ReduceSum", tape.op("Mul", step.gradient, normal), others, keepdims=0)

    return [of_input, of_scale, lambda: tape.op("ReduceSum", step.gradient, others, keepdims=0)]


@rule("LayerNormalization")
def layer_normalization(tape: Tape, step: BackwardStep) -> Sequence[Thunk | None]:
    """Normalised over the last axes."""
    x, scale = step.inputs[:2]
    axis = step.get("axis", -1)
    axes = tape.constant(range(axis if axis < 0 else axis - tape.rank(x), 0))

    def of_scale() -> str:
        normal, _ = _standardise(tape, step, axes)
        return tape.sum_to(tape.op("Mul", step.gradient, normal), scale, x)

    return [
        lambda: _through(tape, step, tape.op("Mul", step.gradient, scale), axes),
        of_scale,
        lambda: tape.sum_to(step.gradient, step.inputs[2], x),
    ]


@input_rule("LpNormalization")
def lp_normalization(tape: Tape, step: BackwardStep) -> str:
    """With y = x / |x|: the part of the gradient along y falls out (p = 2), or along the signs (p = 1)."""
    x, y, axis = step.inputs[0], step.outputs[0], tape.constant([step.get("axis", -1)])
    p = step.get("p", 2)
    norm = tape.op("ReduceL2" if p == 2 else "ReduceL1", x, axis, keepdims=1)
    along = tape.op("ReduceSum", tape.op("Mul", step.gradient, y), axis, keepdims=1)
    direction = y if p == 2 else tape.op("Sign", x)
    return tape.op("Div", tape.op("Sub", step.gradient, tape.op("Mul", direction, along)), norm)


def _standardise(tape: Tape, step: BackwardStep, axes: str) -> tuple[str, str]:
    """Return the input with mean 0 and deviation 1 over the axes, and 1 / deviation."""
    x = step.inputs[0]
    centred = tape.op("Sub", x, tape.op("ReduceMean", x, axes, keepdims=1))
    variance = tape.op("ReduceMean", tape.op("Mul", centred, centred), axes, keepdims=1)
    inverse = tape.op(
        "Reciprocal", tape.op("Sqrt", tape.op("Add", variance, tape.number(step.get("epsilon", 1e-5), x)))
    )
    return tape.op("Mul", centred, inverse), inverse


def _through(tape: Tape, step: BackwardStep, g: str, axes: str) -> str:
    """The gradient without its mean and its part along the standardised values, divided by the deviation."""
    normal, inverse = _standardise(tape, step, axes)
    level = tape.op("ReduceMean", g, axes, keepdims=1)
    along = tape.op("ReduceMean", tape.op("Mul", g, normal), axes, keepdims=1)
    rest = tape.op("Sub", tape.op("Sub", g, level), tape.op("Mul", normal, along))
    return tape.op("Mul", rest, inverse)
