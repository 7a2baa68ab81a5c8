"""Rules for reductions: sums and extremes over axes, and running sums."""

from __future__ import annotations

from collections.abc import Sequence

from arachne_onnx.rules.tape import Step, Tape, Thunk, rule


@rule("ReduceSum")
def reduce_sum(tape: Tape, step: Step) -> Sequence[Thunk | None]:
    """Spread out again."""
    return [lambda: _spread(tape, step, step.g)]


@rule("ReduceMean")
def reduce_mean(tape: Tape, step: Step) -> Sequence[Thunk | None]:
    """Spread out, divided by how many there were."""
    x, y = step.inputs[0], step.outputs[0]

    def shared() -> str:
        sizes = tape.op("Div", tape.op("Size", x), tape.op("Size", y))
        return _spread(tape, step, tape.op("Div", step.g, tape.op("CastLike", sizes, x)))

    return [shared]


@rule("ReduceMax", "ReduceMin")
def reduce_extreme(tape: Tape, step: Step) -> Sequence[Thunk | None]:
    """To the largest (smallest); equal ones share."""
    x, y = step.inputs[0], step.outputs[0]

    def chosen() -> str:
        mask = tape.op("CastLike", tape.op("Equal", x, _aligned(tape, step, y)), x)
        axes = step.input(1)
        ties = tape.op("ReduceSum", mask, axes, keepdims=1, noop_with_empty_axes=step.get("noop_with_empty_axes", 0))
        return tape.op("Mul", _spread(tape, step, step.g), tape.op("Div", mask, ties))

    return [chosen]


@rule("ReduceL2")
def reduce_l2(tape: Tape, step: Step) -> Sequence[Thunk | None]:
    """Times x / y."""
    x, y = step.inputs[0], step.outputs[0]
    return [lambda: tape.op("Mul", x, _aligned(tape, step, tape.op("Div", step.g, y)))]


@rule("ReduceL1")
def reduce_l1(tape: Tape, step: Step) -> Sequence[Thunk | None]:
    """The sign."""
    return [lambda: tape.op("Mul", tape.op("Sign", step.inputs[0]), _aligned(tape, step, step.g))]


@rule("ReduceSumSquare")
def reduce_sum_square(tape: Tape, step: Step) -> Sequence[Thunk | None]:
    """2 x."""
    x = step.inputs[0]
    return [lambda: tape.op("Mul", tape.scaled(x, 2.0, x), _aligned(tape, step, step.g))]


@rule("ReduceLogSum")
def reduce_log_sum(tape: Tape, step: Step) -> Sequence[Thunk | None]:
    """exp(-y), spread out."""
    return [lambda: _spread(tape, step, tape.op("Div", step.g, tape.op("Exp", step.outputs[0])))]


@rule("ReduceLogSumExp")
def reduce_log_sum_exp(tape: Tape, step: Step) -> Sequence[Thunk | None]:
    """The softmax."""
    x, y = step.inputs[0], step.outputs[0]

    def shares() -> str:
        share = tape.op("Exp", tape.op("Sub", x, _aligned(tape, step, y)))
        return tape.op("Mul", share, _aligned(tape, step, step.g))

    return [shares]


@rule("ReduceProd")
def reduce_prod(tape: Tape, step: Step) -> Sequence[Thunk | None]:
    """Times y / x: right where no factor is zero."""
    return [lambda: tape.op("Div", _aligned(tape, step, tape.op("Mul", step.g, step.outputs[0])), step.inputs[0])]


@rule("CumSum")
def cumsum(tape: Tape, step: Step) -> Sequence[Thunk | None]:
    """The running sum from the other end."""
    options = {"exclusive": step.get("exclusive", 0), "reverse": 1 - step.get("reverse", 0)}
    return [lambda: tape.op("CumSum", step.g, step.inputs[1], **options), None]


def _aligned(tape: Tape, step: Step, reduced: str) -> str:
    """A reduced tensor with its reduced axes put back as ones."""
    if step.get("keepdims", 1):
        return reduced
    axes = step.input(1)
    # Without axes everything was summed into a scalar (or nothing was): both broadcast by themselves.
    return reduced if axes is None else tape.op("Unsqueeze", reduced, axes)


def _spread(tape: Tape, step: Step, reduced: str) -> str:
    return tape.op("Expand", _aligned(tape, step, reduced), tape.op("Shape", step.inputs[0]))
