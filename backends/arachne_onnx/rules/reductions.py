"""Rules for reductions: sums and extremes over axes, and running sums."""

from __future__ import annotations

from arachne_onnx.rules.tape import BackwardStep, Tape, input_rule


@input_rule("ReduceSum")
def reduce_sum(tape: Tape, step: BackwardStep) -> str:
    """Spread out again."""
    return _spread(tape, step, step.gradient)


@input_rule("ReduceMean")
def reduce_mean(tape: Tape, step: BackwardStep) -> str:
    """Spread out, divided by how many there were."""
    x, y = step.inputs[0], step.outputs[0]
    sizes = tape.op("Div", tape.op("Size", x), tape.op("Size", y))
    return _spread(tape, step, tape.op("Div", step.gradient, tape.op("CastLike", sizes, x)))


@input_rule("ReduceMax", "ReduceMin")
def reduce_extreme(tape: Tape, step: BackwardStep) -> str:
    """To the largest (smallest); equal ones share."""
    x, y = step.inputs[0], step.outputs[0]
    mask = tape.op("CastLike", tape.op("Equal", x, _restore_axes(tape, step, y)), x)
    axes = step.input(1)
    ties = tape.op("ReduceSum", mask, axes, keepdims=1, noop_with_empty_axes=step.get("noop_with_empty_axes", 0))
    return tape.op("Mul", _spread(tape, step, step.gradient), tape.op("Div", mask, ties))


@input_rule("ReduceL2")
def reduce_l2(tape: Tape, step: BackwardStep) -> str:
    """Times x / y."""
    x, y = step.inputs[0], step.outputs[0]
    return tape.op("Mul", x, _restore_axes(tape, step, tape.op("Div", step.gradient, y)))


@input_rule("ReduceL1")
def reduce_l1(tape: Tape, step: BackwardStep) -> str:
    """The sign."""
    return tape.op("Mul", tape.op("Sign", step.inputs[0]), _restore_axes(tape, step, step.gradient))


@input_rule("ReduceSumSquare")
def reduce_sum_square(tape: Tape, step: BackwardStep) -> str:
    """2 x."""
    x = step.inputs[0]
    return tape.op("Mul", tape.scale(x, 2.0, x), _restore_axes(tape, step, step.gradient))


@input_rule("ReduceLogSum")
def reduce_log_sum(tape: Tape, step: BackwardStep) -> str:
    """exp(-y), spread out."""
    return _spread(tape, step, tape.op("Div", step.gradient, tape.op("Exp", step.outputs[0])))


@input_rule("ReduceLogSumExp")
def reduce_log_sum_exp(tape: Tape, step: BackwardStep) -> str:
    """The softmax."""
    x, y = step.inputs[0], step.outputs[0]
    share = tape.op("Exp", tape.op("Sub", x, _restore_axes(tape, step, y)))
    return tape.op("Mul", share, _restore_axes(tape, step, step.gradient))


@input_rule("ReduceProd")
def reduce_prod(tape: Tape, step: BackwardStep) -> str:
    """Times y / x: right where no factor is zero."""
    return tape.op("Div", _restore_axes(tape, step, tape.op("Mul", step.gradient, step.outputs[0])), step.inputs[0])


@input_rule("CumSum")
def cumsum(tape: Tape, step: BackwardStep) -> str:
    """The running sum from the other end."""
    options = {"exclusive": step.get("exclusive", 0), "reverse": 1 - step.get("reverse", 0)}
    return tape.op("CumSum", step.gradient, step.inputs[1], **options)


def _restore_axes(tape: Tape, step: BackwardStep, reduced: str) -> str:
    """Restore the reduced axes of a tensor with length 1."""
    if step.get("keepdims", 1):
        return reduced
    axes = step.input(1)
    # Without axes everything was summed into a scalar (or nothing was): both broadcast by themselves.
    return reduced if axes is None else tape.op("Unsqueeze", reduced, axes)


def _spread(tape: Tape, step: BackwardStep, reduced: str) -> str:
    return tape.op("Expand", _restore_axes(tape, step, reduced), tape.op("Shape", step.inputs[0]))
