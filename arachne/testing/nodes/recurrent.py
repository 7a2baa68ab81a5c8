"""Recurrent layers, written out step by step: LSTM and GRU.

One layer reads a whole sequence `(n, steps, in)`, from a state of zeros, and gives the state after every step,
`(n, steps, units)`. What leaves it in the sense of `Activation` is what its gates are computed from, before their
sigmoid or tanh: `(n, steps, gates × units)`.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from arachne.model.values import Array
from arachne.testing.nodes.base import Arrays, Layer, Parameters


@dataclass(frozen=True)
class Step:
    """One step: what it began with and what it computed, all `(n, units)` but the gates.

    Attributes:
        state: The state before it.
        cell: The cell before it; a GRU has none, and keeps zeros.
        from_state: What the state brings to the gates, `(n, gates × units)`.
        gates: What the gates are computed from, `(n, gates × units)`.
        new_state: The state after it.
        new_cell: The cell after it.
    """

    state: Array
    cell: Array
    from_state: Array
    gates: Array
    new_state: Array
    new_cell: Array


@dataclass(frozen=True, eq=False)
class Recurrent(Layer):
    """A recurrent layer: weight_ih `(gates × units, in)`, weight_hh `(gates × units, units)`, and up to two biases.

    At every step the input brings weight_ih x + bias_ih to the gates, the state weight_hh h + bias_hh.
    """

    weight_ih: Array
    weight_hh: Array
    bias_ih: Array | None = None
    bias_hh: Array | None = None

    kind = "recurrent"
    PARAMETERS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    LEAVES_ITS_VALUE = False
    GATES: ClassVar[int]

    @property
    def units(self) -> int:
        """The width of the state."""
        return int(self.weight_hh.shape[1])

    @abstractmethod
    def step(self, from_input: Array, from_state: Array, state: Array, cell: Array) -> Step:
        """One step of the formula."""

    @abstractmethod
    def step_back(self, step: Step, d_state: Array, d_cell: Array) -> tuple[Array, Array, Array, Array]:
        """One step back, given the gradient with respect to the new state and the new cell.

        Returns:
            The gradient with respect to the gates, to `from_state`, to the state before as far as it does not pass
            through `from_state`, and to the cell before.
        """

    def forward(self, inputs: Arrays, weights: Parameters) -> Array:
        return np.stack([step.new_state for step in self._steps(inputs[0], weights)], axis=1)

    def backward(self, gradient: Array, inputs: Arrays, output: Array, weights: Parameters) -> tuple[Array, ...]:
        d_gates, _ = self._back(gradient, self._steps(inputs[0], weights), weights)
        return (d_gates @ weights["weight_ih"],)

    def weight_gradients(self, gradient: Array, inputs: Arrays, weights: Parameters) -> dict[str, Array]:
        steps = self._steps(inputs[0], weights)
        d_gates, d_from_state = self._back(gradient, steps, weights)
        states = np.stack([step.state for step in steps], axis=1)
        gradients: dict[str, Array] = {
            "weight_ih": np.einsum("ntg,nti->gi", d_gates, inputs[0]),
            "weight_hh": np.einsum("ntg,ntu->gu", d_from_state, states),
            "bias_ih": d_gates.sum(axis=(0, 1)),
            "bias_hh": d_from_state.sum(axis=(0, 1)),
        }
        return {name: gradients[name] for name in weights}

    def entering(self, inputs: Arrays, weights: Parameters) -> dict[str, Array]:
        states = np.stack([step.state for step in self._steps(inputs[0], weights)], axis=1)
        return {"weight_ih": inputs[0], "weight_hh": states}

    def leaving(self, inputs: Arrays, output: Array, weights: Parameters) -> Array:
        return np.stack([step.gates for step in self._steps(inputs[0], weights)], axis=1)

    def leaving_gradient(self, gradient: Array, inputs: Arrays, weights: Parameters) -> Array:
        """Through the state of the step itself and, by way of that, of all later steps."""
        return self._back(gradient, self._steps(inputs[0], weights), weights)[0]

    def _steps(self, x: Array, weights: Parameters) -> list[Step]:
        state = cell = np.zeros((len(x), self.units), x.dtype)
        steps: list[Step] = []
        for t in range(x.shape[1]):
            from_input = x[:, t] @ weights["weight_ih"].T + weights.get("bias_ih", 0)
            from_state = state @ weights["weight_hh"].T + weights.get("bias_hh", 0)
            steps.append(self.step(from_input, from_state, state, cell))
            state, cell = steps[-1].new_state, steps[-1].new_cell
        return steps

    def _back(self, gradient: Array, steps: list[Step], weights: Parameters) -> tuple[Array, Array]:
        """The gradient with respect to the gates and to what the state brings to them, `(n, steps, gates × units)`."""
        d_state = d_cell = np.zeros_like(gradient[:, 0])
        found: list[tuple[Array, Array]] = []
        for t in reversed(range(len(steps))):
            d_gates, d_from_state, d_direct, d_cell = self.step_back(steps[t], d_state + gradient[:, t], d_cell)
            d_state = d_direct + d_from_state @ weights["weight_hh"]
            found.append((d_gates, d_from_state))
        gates, from_state = zip(*reversed(found), strict=True)
        return np.stack(gates, axis=1), np.stack(from_state, axis=1)


class Lstm(Recurrent):
    """Gates i f g o: c' = sigmoid(f) c + sigmoid(i) tanh(g), h' = sigmoid(o) tanh(c')."""

    GATES = 4

    def step(self, from_input: Array, from_state: Array, state: Array, cell: Array) -> Step:
        gates = from_input + from_state
        i, f, g, o = self._open(gates)
        new_cell = f * cell + i * g
        return Step(state, cell, from_state, gates, o * np.tanh(new_cell), new_cell)

    def step_back(self, step: Step, d_state: Array, d_cell: Array) -> tuple[Array, Array, Array, Array]:
        i, f, g, o = self._open(step.gates)
        squashed = np.tanh(step.new_cell)
        d_cell = d_cell + d_state * o * (1 - squashed**2)
        d_gates = np.concatenate(
            [
                d_cell * g * i * (1 - i),
                d_cell * step.cell * f * (1 - f),
                d_cell * i * (1 - g**2),
                d_state * squashed * o * (1 - o),
            ],
            axis=1,
        )
        return d_gates, d_gates, np.zeros_like(d_state), d_cell * f

    def _open(self, gates: Array) -> tuple[Array, Array, Array, Array]:
        i, f, g, o = np.split(gates, 4, axis=1)
        return sigmoid(i), sigmoid(f), np.tanh(g), sigmoid(o)


class Gru(Recurrent):
    """Gates r z n, the reset behind the product: h' = (1 − sigmoid(z)) tanh(n) + sigmoid(z) h.

    n is what the input brings to it plus sigmoid(r) × what the state brings to it (with bias_hh, as in PyTorch; Keras
    calls this `reset_after`, ONNX `linear_before_reset`).
    """

    GATES = 3

    def step(self, from_input: Array, from_state: Array, state: Array, cell: Array) -> Step:
        (x_r, x_z, x_n), (h_r, h_z, h_n) = np.split(from_input, 3, axis=1), np.split(from_state, 3, axis=1)
        r, z = x_r + h_r, x_z + h_z
        n = x_n + sigmoid(r) * h_n
        update = sigmoid(z)
        new = (1 - update) * np.tanh(n) + update * state
        return Step(state, cell, from_state, np.concatenate([r, z, n], axis=1), new, cell)

    def step_back(self, step: Step, d_state: Array, d_cell: Array) -> tuple[Array, Array, Array, Array]:
        r, z, n = np.split(step.gates, 3, axis=1)
        reset, update, new = sigmoid(r), sigmoid(z), np.tanh(n)
        h_n = np.split(step.from_state, 3, axis=1)[2]
        d_n = d_state * (1 - update) * (1 - new**2)
        d_z = d_state * (step.state - new) * update * (1 - update)
        d_r = d_n * h_n * reset * (1 - reset)
        d_gates = np.concatenate([d_r, d_z, d_n], axis=1)
        return d_gates, np.concatenate([d_r, d_z, d_n * reset], axis=1), d_state * update, d_cell


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)), as (1 + tanh(x / 2)) / 2, which never overflows."""
    return (1 + np.tanh(x / 2)) / 2
