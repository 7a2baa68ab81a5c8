"""Recurrent layers: computed step by step and gate by gate while they are watched."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from keras import layers as kl
from keras import ops

from arachne_keras import layout
from arachne_keras.kinds import Kind, Layer, Replacements, Watcher


class Recurrent(Kind):
    """LSTM, GRU and simple recurrent layers: `weight_ih` and `weight_hh`, one use for a whole sequence.

    Inputs and outputs have an axis of steps, in order of computation: `(n, steps, ...)`. The outputs are the
    pre-activations of the gates. A GRU with `reset_after=False` multiplies the n rows of `weight_hh` with r × h; the
    input is reported as h for all of them.
    """

    name = "recurrent"

    def __init__(self, keras_layer: Any, name: str, shape: Sequence[int | None] | None = None) -> None:
        self._cell = keras_layer.cell
        self._gates = GATES[next(kind for kind in GATES if isinstance(self._cell, kind))]
        super().__init__(keras_layer, name, shape)

    @classmethod
    def accepts(cls, keras_layer: Any) -> bool:
        """Whether its cell is one of Keras' own."""
        return type(keras_layer.cell) in GATES

    def find(self, name: str) -> Iterator[Layer]:
        """One layer; `bias_hh` only where Keras stores a second bias."""
        cell, order = self._cell, self._gates
        stored = {
            "weight_ih": layout.gates(cell.kernel, order),
            "weight_hh": layout.gates(cell.recurrent_kernel, order),
        }
        if cell.bias is not None and len(cell.bias.shape) == 1:
            stored["bias_ih"] = layout.gate_bias(cell.bias, order)
        elif cell.bias is not None:
            stored["bias_ih"] = layout.gate_bias(cell.bias, order, 0)
            stored["bias_hh"] = layout.gate_bias(cell.bias, order, 1)
        yield Layer(name, self, stored)

    def replacements(self, watcher: Watcher) -> Replacements:
        """Replace Keras' loop by ours: its unrolled loop misplaces the mask of a sequence that is read backwards."""
        own, layer = self.keras, self.layers[0]

        def inner_loop(sequences: Any, initial_state: Any, mask: Any, training: bool = False) -> tuple[Any, Any, Any]:
            watcher.begin(layer)
            mask = mask[0] if isinstance(mask, (list, tuple)) else mask
            states, outputs = list(initial_state), list[Any]()
            order = range(sequences.shape[1])
            for t in reversed(order) if own.go_backwards else order:
                entering = {"weight_ih": sequences[:, t], "weight_hh": states[0]}
                found = self._step(watcher, entering, states)
                before = [ops.zeros_like(found[0]) if own.zero_output_for_mask or not outputs else outputs[-1], *states]
                if mask is not None:
                    there = ops.expand_dims(mask[:, t], -1)
                    found = [ops.where(there, new, old) for new, old in zip([found[0], *found], before, strict=True)]
                    outputs.append(found.pop(0))
                else:
                    outputs.append(found[0])
                states = found
            return outputs[-1], ops.stack(outputs, axis=1), states

        replacements: Replacements = {(own, "inner_loop"): inner_loop}
        if hasattr(own, "use_cudnn"):
            replacements[own, "use_cudnn"] = False  # a bidirectional layer would go past both loops at once
        return replacements

    def _step(self, watcher: Watcher, entering: Mapping[str, Any], states: list[Any]) -> list[Any]:
        def show(gates: list[Any]) -> list[Any]:
            return watcher.step(self.layers[0], entering, gates)

        return list(STEPS[type(self._cell)](self._cell, entering["weight_ih"], states, show))


Show = Callable[[list[Any]], list[Any]]


def _lstm(cell: Any, inputs: Any, states: list[Any], show: Show) -> tuple[Any, ...]:
    """One step of an LSTM; the gates i f g o as Keras stores them."""
    z = ops.matmul(inputs, cell.kernel) + ops.matmul(states[0], cell.recurrent_kernel)
    (z,) = show([z if cell.bias is None else z + cell.bias])
    i, f, g, o = ops.split(z, 4, axis=1)
    carry = cell.recurrent_activation(f) * states[1] + cell.recurrent_activation(i) * cell.activation(g)
    return cell.recurrent_activation(o) * cell.activation(carry), carry


def _gru(cell: Any, inputs: Any, states: list[Any], show: Show) -> tuple[Any, ...]:
    """One step of a GRU; Keras stores z r n, shown is r z n, and n needs r before it can be computed."""
    h, units = states[0], cell.units
    from_inputs = ops.matmul(inputs, cell.kernel)
    biases: list[Any] = [None, None]
    if cell.bias is not None:
        biases = [cell.bias[0], cell.bias[1]] if cell.reset_after else [cell.bias, None]
        from_inputs = from_inputs + biases[0]
    x_z, x_r, x_n = ops.split(from_inputs, 3, axis=-1)
    kernel = cell.recurrent_kernel if cell.reset_after else cell.recurrent_kernel[:, : 2 * units]
    from_state = ops.matmul(h, kernel)
    if biases[1] is not None:
        from_state = from_state + biases[1]
    r, z = show([x_r + from_state[:, units : 2 * units], x_z + from_state[:, :units]])
    r, z = cell.recurrent_activation(r), cell.recurrent_activation(z)
    if cell.reset_after:
        n = x_n + r * from_state[:, 2 * units :]
    else:
        n = x_n + ops.matmul(r * h, cell.recurrent_kernel[:, 2 * units :])
    (n,) = show([n])
    return (z * h + (1 - z) * cell.activation(n),)


def _simple(cell: Any, inputs: Any, states: list[Any], show: Show) -> tuple[Any, ...]:
    """One step of a simple recurrent layer."""
    z = ops.matmul(inputs, cell.kernel) + ops.matmul(states[0], cell.recurrent_kernel)
    (z,) = show([z if cell.bias is None else z + cell.bias])
    return (cell.activation(z),)


GATES: Mapping[type, tuple[int, ...]] = {
    kl.LSTMCell: (0, 1, 2, 3),
    kl.GRUCell: (1, 0, 2),
    kl.SimpleRNNCell: (0,),
}
"""For each cell, the stored position of each canonical gate: i f g o, r z n."""

STEPS: Mapping[type, Callable[..., tuple[Any, ...]]] = {
    kl.LSTMCell: _lstm,
    kl.GRUCell: _gru,
    kl.SimpleRNNCell: _simple,
}
