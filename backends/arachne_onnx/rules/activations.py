"""Rules for activation functions, and for the softmax family."""

from __future__ import annotations

import math
from collections.abc import Sequence

from arachne_onnx.rules.tape import BackwardStep, Tape, Thunk, function_rules, input_rule, rule

SELU_ALPHA, SELU_GAMMA = 1.67326319217681884765625, 1.05070102214813232421875


function_rules(
    {
        "Relu": lambda tape, g, x, y: tape.op("Mul", g, tape.op("Sign", y)),  # 0 at zero, as in other frameworks
        "Softplus": lambda tape, g, x, y: tape.op("Mul", g, tape.op("Sigmoid", x)),
        "Sigmoid": lambda tape, g, x, y: tape.op("Mul", g, tape.op("Mul", y, tape.op("Sub", tape.number(1, y), y))),
        "Tanh": lambda tape, g, x, y: tape.op("Mul", g, tape.op("Sub", tape.number(1, y), tape.op("Mul", y, y))),
    }
)


@input_rule("LeakyRelu")
def leaky_relu(tape: Tape, step: BackwardStep) -> str:
    """One, or the slope."""
    return _slope(tape, step, tape.number(step.get("alpha", 0.01), step.inputs[0]))


@input_rule("ThresholdedRelu")
def thresholded_relu(tape: Tape, step: BackwardStep) -> str:
    """Derivative 1 above the threshold, else 0."""
    x = step.inputs[0]
    return tape.op(
        "Where", tape.op("Greater", x, tape.number(step.get("alpha", 1.0), x)), step.gradient, tape.number(0, x)
    )


@rule("PRelu")
def prelu(tape: Tape, step: BackwardStep) -> Sequence[Thunk | None]:
    """One, or the slope; the slope's gradient is the input below zero."""
    x, slope = step.inputs

    def of_slope() -> str:
        below = tape.op("Min", x, tape.number(0, x))
        return tape.sum_to(tape.op("Mul", step.gradient, below), slope, step.outputs[0])

    return [lambda: _slope(tape, step, slope), of_slope]


@input_rule("Elu")
def elu(tape: Tape, step: BackwardStep) -> str:
    """One, or y + alpha."""
    y = step.outputs[0]
    return _slope(tape, step, tape.op("Add", y, tape.number(step.get("alpha", 1.0), y)))


@input_rule("Celu")
def celu(tape: Tape, step: BackwardStep) -> str:
    """One, or exp(x / alpha)."""
    x = step.inputs[0]
    return _slope(tape, step, tape.op("Exp", tape.scale(x, 1 / step.get("alpha", 1.0), x)))


@input_rule("Selu")
def selu(tape: Tape, step: BackwardStep) -> str:
    """Gamma, or y + alpha · gamma."""
    x, y = step.inputs[0], step.outputs[0]
    alpha, gamma = step.get("alpha", SELU_ALPHA), step.get("gamma", SELU_GAMMA)
    below = tape.op("Add", y, tape.number(alpha * gamma, y))
    chosen = tape.op("Where", tape.op("Greater", x, tape.number(0, x)), tape.number(gamma, x), below)
    return tape.op("Mul", step.gradient, chosen)


@input_rule("Softsign")
def softsign(tape: Tape, step: BackwardStep) -> str:
    """1 / (1 + |x|)²."""
    x = step.inputs[0]
    base = tape.op("Add", tape.op("Abs", x), tape.number(1, x))
    return tape.op("Div", step.gradient, tape.op("Mul", base, base))


@input_rule("Mish")
def mish(tape: Tape, step: BackwardStep) -> str:
    """With t = tanh(softplus x): t + x (1 - t²) sigmoid(x)."""
    x = step.inputs[0]
    t = tape.op("Tanh", tape.op("Softplus", x))
    rest = tape.op("Mul", tape.op("Sub", tape.number(1, x), tape.op("Mul", t, t)), tape.op("Sigmoid", x))
    return tape.op("Mul", step.gradient, tape.op("Add", t, tape.op("Mul", x, rest)))


@input_rule("HardSigmoid")
def hard_sigmoid(tape: Tape, step: BackwardStep) -> str:
    """Alpha inside the ramp."""
    return tape.scale(_ramp(tape, step, step.outputs[0]), step.get("alpha", 0.2), step.inputs[0])


@input_rule("HardSwish")
def hard_swish(tape: Tape, step: BackwardStep) -> str:
    """Hard sigmoid of slope 1/6 plus x / 6 inside its ramp."""
    x = step.inputs[0]
    gate = tape.op("HardSigmoid", x, alpha=1 / 6, beta=0.5)
    inside = tape.op("Mul", _ramp(tape, step, gate), tape.scale(x, 1 / 6, x))
    return tape.op("Add", tape.op("Mul", step.gradient, gate), inside)


@input_rule("Softmax")
def softmax(tape: Tape, step: BackwardStep) -> str:
    """Gradient less its mean under y, times y."""
    y, axis = step.outputs[0], step.get("axis", -1)
    mean = tape.op("ReduceSum", tape.op("Mul", step.gradient, y), tape.constant([axis]), keepdims=1)
    return tape.op("Mul", y, tape.op("Sub", step.gradient, mean))


@input_rule("LogSoftmax")
def log_softmax(tape: Tape, step: BackwardStep) -> str:
    """The gradient less its sum times the probability."""
    y, axis = step.outputs[0], step.get("axis", -1)
    total = tape.op("ReduceSum", step.gradient, tape.constant([axis]), keepdims=1)
    return tape.op("Sub", step.gradient, tape.op("Mul", tape.op("Exp", y), total))


def _slope(tape: Tape, step: BackwardStep, below: str) -> str:
    """One where x > 0, `below` elsewhere, times the gradient."""
    x = step.inputs[0]
    positive = tape.op("Greater", x, tape.number(0, x))
    return tape.op("Where", positive, step.gradient, tape.op("Mul", step.gradient, below))


def _ramp(tape: Tape, step: BackwardStep, gate: str) -> str:
    """The gradient where a hard sigmoid's value is strictly between 0 and 1."""
    x = step.inputs[0]
    inside = tape.op("And", tape.op("Greater", gate, tape.number(0, x)), tape.op("Less", gate, tape.number(1, x)))
    return tape.op("Where", inside, step.gradient, tape.number(0, x))


@input_rule("Gelu", "com.microsoft.Gelu")
def gelu(tape: Tape, step: BackwardStep) -> str:
    """Exact: Φ(x) + x φ(x). By tanh: with t = tanh(u), (1 + t) / 2 + x (1 - t²) u' / 2."""
    x = step.inputs[0]
    if step.get("approximate", "none") == "tanh":
        square = tape.op("Mul", x, x)
        inner = tape.op("Add", tape.scale(square, 0.044715, x), tape.number(1, x))
        t = tape.op("Tanh", tape.scale(tape.op("Mul", x, inner), math.sqrt(2 / math.pi), x))
        slope = tape.op("Add", tape.scale(square, 3 * 0.044715, x), tape.number(1, x))
        bend = tape.op("Mul", tape.op("Sub", tape.number(1, x), tape.op("Mul", t, t)), slope)
        rest = tape.op("Mul", x, tape.scale(bend, math.sqrt(2 / math.pi), x))
        both = tape.op("Add", tape.op("Add", t, tape.number(1, x)), rest)
        return tape.op("Mul", step.gradient, tape.scale(both, 0.5, x))
    share = tape.op("Add", tape.op("Erf", tape.scale(x, math.sqrt(0.5), x)), tape.number(1, x))
    bell = tape.op("Exp", tape.scale(tape.op("Mul", x, x), -0.5, x))
    rest = tape.op("Mul", x, tape.scale(bell, 1 / math.sqrt(2 * math.pi), x))
    return tape.op("Mul", step.gradient, tape.op("Add", tape.scale(share, 0.5, x), rest))
