"""Rules for arithmetic, element by element, with NumPy's broadcasting undone by summing."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from arachne_onnx.rules.tape import Step, Tape, Thunk, rule


@rule("Add")
def add(tape: Tape, step: Step) -> Sequence[Thunk | None]:
    """The gradient goes to both."""
    return [_summed(tape, step, index, lambda: step.g) for index in range(2)]


@rule("Sum")
def variadic_sum(tape: Tape, step: Step) -> Sequence[Thunk | None]:
    """The gradient goes to all."""
    return [_summed(tape, step, index, lambda: step.g) for index in range(len(step.inputs))]


@rule("Mean")
def variadic_mean(tape: Tape, step: Step) -> Sequence[Thunk | None]:
    """The gradient goes to all in equal parts."""
    share = 1 / len(step.inputs)
    return [
        _summed(tape, step, index, lambda: tape.scaled(step.g, share, step.outputs[0]))
        for index in range(len(step.inputs))
    ]


@rule("Sub")
def sub(tape: Tape, step: Step) -> Sequence[Thunk | None]:
    """Plus and minus."""
    return [
        _summed(tape, step, 0, lambda: step.g),
        _summed(tape, step, 1, lambda: tape.op("Neg", step.g)),
    ]


@rule("Mul")
def mul(tape: Tape, step: Step) -> Sequence[Thunk | None]:
    """Each takes the other as its factor."""
    a, b = step.inputs
    return [
        _summed(tape, step, 0, lambda: tape.op("Mul", step.g, b)),
        _summed(tape, step, 1, lambda: tape.op("Mul", step.g, a)),
    ]


@rule("Div")
def div(tape: Tape, step: Step) -> Sequence[Thunk | None]:
    """1 / b and -y / b."""
    b = step.inputs[1]
    return [
        _summed(tape, step, 0, lambda: tape.op("Div", step.g, b)),
        _summed(tape, step, 1, lambda: tape.op("Neg", tape.op("Div", tape.op("Mul", step.g, step.outputs[0]), b))),
    ]


@rule("Pow")
def power(tape: Tape, step: Step) -> Sequence[Thunk | None]:
    """The base gets p x^(p-1), the exponent y log x."""
    x, p = step.inputs
    fixed = tape.value(p)

    def base() -> str:
        if fixed is not None and fixed.size == 1 and float(fixed.reshape(-1)[0]) == 2.0:
            return tape.op("Mul", step.g, tape.scaled(x, 2.0, x))
        exponent = tape.op("CastLike", p, x)
        lower = tape.op("Pow", x, tape.op("Sub", exponent, tape.number(1, x)))
        return tape.op("Mul", step.g, tape.op("Mul", exponent, lower))

    def exponent() -> str:
        return tape.op("Mul", step.g, tape.op("Mul", step.outputs[0], tape.op("Log", x)))

    return [_summed(tape, step, 0, base), _summed(tape, step, 1, exponent)]


@rule("Where")
def where(tape: Tape, step: Step) -> Sequence[Thunk | None]:
    """To whichever was chosen."""
    condition = step.inputs[0]
    zero = tape.number(0, step.outputs[0])
    return [
        None,
        _summed(tape, step, 1, lambda: tape.op("Where", condition, step.g, zero)),
        _summed(tape, step, 2, lambda: tape.op("Where", condition, zero, step.g)),
    ]


@rule("Max", "Min")
def extreme(tape: Tape, step: Step) -> Sequence[Thunk | None]:
    """To the largest (smallest); equal ones share."""
    output = step.outputs[0]

    def mask(name: str) -> str:
        return tape.op("CastLike", tape.op("Equal", name, output), output)

    def share(index: int) -> str:
        masks = [mask(name) for name in step.inputs]
        total = masks[0] if len(masks) == 1 else tape.op("Sum", *masks)
        return tape.op("Div", tape.op("Mul", step.g, masks[index]), total)

    return [_summed(tape, step, index, _bound(share, index)) for index in range(len(step.inputs))]


@rule("Neg")
def neg(tape: Tape, step: Step) -> Sequence[Thunk | None]:
    """-1."""
    return [lambda: tape.op("Neg", step.g)]


@rule("Abs")
def absolute(tape: Tape, step: Step) -> Sequence[Thunk | None]:
    """The sign."""
    return [lambda: tape.op("Mul", step.g, tape.op("Sign", step.inputs[0]))]


@rule("Sqrt")
def sqrt(tape: Tape, step: Step) -> Sequence[Thunk | None]:
    """1 / 2y."""
    y = step.outputs[0]
    return [lambda: tape.op("Div", step.g, tape.scaled(y, 2.0, y))]


@rule("Reciprocal")
def reciprocal(tape: Tape, step: Step) -> Sequence[Thunk | None]:
    """-y²."""
    y = step.outputs[0]
    return [lambda: tape.op("Neg", tape.op("Mul", step.g, tape.op("Mul", y, y)))]


@rule("Exp")
def exp(tape: Tape, step: Step) -> Sequence[Thunk | None]:
    """Itself."""
    return [lambda: tape.op("Mul", step.g, step.outputs[0])]


@rule("Log")
def log(tape: Tape, step: Step) -> Sequence[Thunk | None]:
    """1 / x."""
    return [lambda: tape.op("Div", step.g, step.inputs[0])]


@rule("Sin")
def sin(tape: Tape, step: Step) -> Sequence[Thunk | None]:
    """The cosine."""
    return [lambda: tape.op("Mul", step.g, tape.op("Cos", step.inputs[0]))]


@rule("Cos")
def cos(tape: Tape, step: Step) -> Sequence[Thunk | None]:
    """Minus the sine."""
    return [lambda: tape.op("Neg", tape.op("Mul", step.g, tape.op("Sin", step.inputs[0])))]


@rule("Atan")
def atan(tape: Tape, step: Step) -> Sequence[Thunk | None]:
    """1 / (1 + x²)."""
    x = step.inputs[0]
    return [lambda: tape.op("Div", step.g, tape.op("Add", tape.op("Mul", x, x), tape.number(1, x)))]


@rule("Erf")
def erf(tape: Tape, step: Step) -> Sequence[Thunk | None]:
    """2 / √π · exp(-x²)."""
    x = step.inputs[0]

    def bell() -> str:
        curve = tape.op("Exp", tape.op("Neg", tape.op("Mul", x, x)))
        return tape.op("Mul", step.g, tape.scaled(curve, 2 / math.sqrt(math.pi), x))

    return [bell]


@rule("Mod")
def mod(tape: Tape, step: Step) -> Sequence[Thunk | None]:
    """One, for the dividend; jumps are ignored."""
    return [_summed(tape, step, 0, lambda: step.g), None]


@rule("Identity", "QuantizeLinear", "DequantizeLinear")
def identity(tape: Tape, step: Step) -> Sequence[Thunk | None]:
    """Nothing changes; quantisation is passed straight through."""
    return [lambda: step.g]


@rule("Dropout")
def dropout(tape: Tape, step: Step) -> Sequence[Thunk | None]:
    """Nothing changes: at inference it does nothing."""
    return [lambda: step.g]


@rule("Cast", "CastLike")
def cast(tape: Tape, step: Step) -> Sequence[Thunk | None]:
    """Back to the element type it came from."""
    return [lambda: tape.op("CastLike", step.g, step.inputs[0])]


@rule("Clip")
def clip(tape: Tape, step: Step) -> Sequence[Thunk | None]:
    """Where the value was between the limits; a value on a limit counts as inside."""
    x, low, high = step.inputs[0], step.input(1), step.input(2)

    def inside() -> str:
        g = step.g
        for limit, outside in ((low, "Less"), (high, "Greater")):
            if limit is not None:
                g = tape.op("Where", tape.op(outside, x, limit), tape.number(0, x), g)
        return g

    return [inside]


def _summed(tape: Tape, step: Step, index: int, gradient: Thunk) -> Thunk:
    return lambda: tape.sum_to(str(gradient()), step.inputs[index], step.outputs[0])


def _bound(function: Callable[[int], str], index: int) -> Thunk:
    return lambda: function(index)
