"""Rules for arithmetic, element by element, with NumPy's broadcasting undone by summing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from arachne_onnx.rules.tape import BackwardStep, Tape, Thunk, function_rules, input_rule, rule


@rule("Add", "Sum")
def add(tape: Tape, step: BackwardStep) -> Sequence[Thunk | None]:
    """The gradient goes to all."""
    return [_sum_to_input(tape, step, index, lambda: step.gradient) for index in range(len(step.inputs))]


@rule("Mean")
def variadic_mean(tape: Tape, step: BackwardStep) -> Sequence[Thunk | None]:
    """The gradient goes to all in equal parts."""
    share = 1 / len(step.inputs)
    return [
        _sum_to_input(tape, step, index, lambda: tape.scale(step.gradient, share, step.outputs[0]))
        for index in range(len(step.inputs))
    ]


@rule("Sub")
def sub(tape: Tape, step: BackwardStep) -> Sequence[Thunk | None]:
    """Plus and minus."""
    return [
        _sum_to_input(tape, step, 0, lambda: step.gradient),
        _sum_to_input(tape, step, 1, lambda: tape.op("Neg", step.gradient)),
    ]


@rule("Mul")
def mul(tape: Tape, step: BackwardStep) -> Sequence[Thunk | None]:
    """Each takes the other as its factor."""
    a, b = step.inputs
    return [
        _sum_to_input(tape, step, 0, lambda: tape.op("Mul", step.gradient, b)),
        _sum_to_input(tape, step, 1, lambda: tape.op("Mul", step.gradient, a)),
    ]


@rule("Div")
def div(tape: Tape, step: BackwardStep) -> Sequence[Thunk | None]:
    """1 / b and -y / b."""
    b = step.inputs[1]
    return [
        _sum_to_input(tape, step, 0, lambda: tape.op("Div", step.gradient, b)),
        _sum_to_input(
            tape, step, 1, lambda: tape.op("Neg", tape.op("Div", tape.op("Mul", step.gradient, step.outputs[0]), b))
        ),
    ]


@rule("Pow")
def power(tape: Tape, step: BackwardStep) -> Sequence[Thunk | None]:
    """The base gets p x^(p-1), the exponent y log x."""
    x, p = step.inputs
    fixed = tape.value(p)

    def base() -> str:
        if fixed is not None and fixed.size == 1 and float(fixed.reshape(-1)[0]) == 2.0:
            return tape.op("Mul", step.gradient, tape.scale(x, 2.0, x))
        exponent = tape.op("CastLike", p, x)
        lower = tape.op("Pow", x, tape.op("Sub", exponent, tape.number(1, x)))
        return tape.op("Mul", step.gradient, tape.op("Mul", exponent, lower))

    def exponent() -> str:
        return tape.op("Mul", step.gradient, tape.op("Mul", step.outputs[0], tape.op("Log", x)))

    return [_sum_to_input(tape, step, 0, base), _sum_to_input(tape, step, 1, exponent)]


@rule("Where")
def where(tape: Tape, step: BackwardStep) -> Sequence[Thunk | None]:
    """The gradient goes to the selected input."""
    condition = step.inputs[0]
    zero = tape.number(0, step.outputs[0])
    return [
        None,
        _sum_to_input(tape, step, 1, lambda: tape.op("Where", condition, step.gradient, zero)),
        _sum_to_input(tape, step, 2, lambda: tape.op("Where", condition, zero, step.gradient)),
    ]


@rule("Max", "Min")
def extreme(tape: Tape, step: BackwardStep) -> Sequence[Thunk | None]:
    """To the largest (smallest); equal ones share."""
    output = step.outputs[0]

    def mask(name: str) -> str:
        return tape.op("CastLike", tape.op("Equal", name, output), output)

    def share(index: int) -> str:
        masks = [mask(name) for name in step.inputs]
        total = masks[0] if len(masks) == 1 else tape.op("Sum", *masks)
        return tape.op("Div", tape.op("Mul", step.gradient, masks[index]), total)

    return [_sum_to_input(tape, step, index, partial(share, index)) for index in range(len(step.inputs))]


function_rules(
    {
        "Identity": lambda tape, g, x, y: g,
        "DequantizeLinear": lambda tape, g, x, y: g,
        "Dropout": lambda tape, g, x, y: g,  # at inference it does nothing
        "Neg": lambda tape, g, x, y: tape.op("Neg", g),
        "Abs": lambda tape, g, x, y: tape.op("Mul", g, tape.op("Sign", x)),
        "Sqrt": lambda tape, g, x, y: tape.op("Div", g, tape.scale(y, 2.0, y)),
        "Reciprocal": lambda tape, g, x, y: tape.op("Neg", tape.op("Mul", g, tape.op("Mul", y, y))),
        "Exp": lambda tape, g, x, y: tape.op("Mul", g, y),
        "Log": lambda tape, g, x, y: tape.op("Div", g, x),
        "Sin": lambda tape, g, x, y: tape.op("Mul", g, tape.op("Cos", x)),
        "Cos": lambda tape, g, x, y: tape.op("Neg", tape.op("Mul", g, tape.op("Sin", x))),
        "Atan": lambda tape, g, x, y: tape.op("Div", g, tape.op("Add", tape.op("Mul", x, x), tape.number(1, x))),
        "Cast": lambda tape, g, x, y: tape.op("CastLike", g, x),
        "CastLike": lambda tape, g, x, y: tape.op("CastLike", g, x),
    }
)


@input_rule("Erf")
def erf(tape: Tape, step: BackwardStep) -> str:
    """2 / √π · exp(-x²)."""
    x = step.inputs[0]
    curve = tape.op("Exp", tape.op("Neg", tape.op("Mul", x, x)))
    return tape.op("Mul", step.gradient, tape.scale(curve, 2 / math.sqrt(math.pi), x))


@input_rule("Mod")
def mod(tape: Tape, step: BackwardStep) -> str:
    """One, for the dividend; jumps are ignored."""
    return tape.sum_to(step.gradient, step.inputs[0], step.outputs[0])


@input_rule("QuantizeLinear")
def quantise(tape: Tape, step: BackwardStep) -> str:
    """Passed straight through within the range; outside it ends, because quantisers fold ReLUs into the range."""
    x, scale, zero = step.inputs[0], *(tape.graph.constants.get(step.input(number) or "") for number in (1, 2))
    if scale is None or zero is None or scale.size != 1 or zero.dtype.kind not in "iu":
        return step.gradient
    limits, origin, unit = np.iinfo(zero.dtype), int(zero.reshape(())), float(scale.reshape(()))
    g = step.gradient
    for limit, outside in ((limits.min, "Less"), (limits.max, "Greater")):
        end = tape.number((int(limit) - origin) * unit, x)
        g = tape.op("Where", tape.op(outside, x, end), tape.number(0, x), g)
    return g


@input_rule("Clip")
def clip(tape: Tape, step: BackwardStep) -> str:
    """Where the value was between the limits; a value on a limit counts as inside."""
    x, low, high = step.inputs[0], step.input(1), step.input(2)
    g = step.gradient
    for limit, outside in ((low, "Less"), (high, "Greater")):
        if limit is not None:
            g = tape.op("Where", tape.op(outside, x, limit), tape.number(0, x), g)
    return g


def _sum_to_input(tape: Tape, step: BackwardStep, index: int, gradient: Thunk) -> Thunk:
    return lambda: tape.sum_to(str(gradient()), step.inputs[index], step.outputs[0])
