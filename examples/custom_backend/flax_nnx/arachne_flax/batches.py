"""Run a model on any number of inputs in batches, padded to a power of two so that few shapes are compiled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from arachne.adapting.running import BatchRunner
from arachne.model.backend import LossGradient, Weights, compute_gradient
from arachne.model.values import Activation, Array, Inputs, count
from arachne_flax import running
from arachne_flax.running import NOTHING, Values

MIN_BATCH_ROWS = 8


@dataclass(eq=False)
class Model(BatchRunner):
    """A model's structure and state on a device; every method takes the weights as an argument.

    Attributes:
        graph: The structure; models of one structure share compiled functions.
        state: Its variables; those of its weights are not used.
        device: Where it computes.
    """

    graph: Any
    state: Any
    device: Any

    def put(self, values: Any) -> Any:
        """Move arrays to the model's device."""
        return jax.device_put(values, self.device)

    def scores(self, weights: Values, inputs: Inputs, held: Any = NOTHING) -> Array:
        """Compute class scores `(n, classes)`; `held` replaces computed values, row by row."""
        found = [
            np.asarray(running.answers(self.graph, self.state, weights, *part, ())[0])[:size]
            for _, size, part in self._parts(inputs, held)
        ]
        return np.concatenate(found)

    def watch_layers(
        self, weights: Values, inputs: Inputs, names: tuple[str, ...]
    ) -> dict[str, tuple[dict[str, Any], ...]]:
        """Return the uses of some layers, each with `entering`, `leaving` and, in Flax' layout, the input `value`."""
        found = []
        for _, size, part in self._parts(inputs, NOTHING):
            _, uses = running.answers(self.graph, self.state, weights, *part, names)
            found.append(jax.tree.map(lambda array, n=size: np.asarray(array)[:n], uses))
        whole = jax.tree.map(lambda *arrays: np.concatenate(arrays), *found)
        return {name: tuple(whole[name]) for name in names}

    def gradients(
        self, weights: Values, of: Sequence[tuple[str, str]], inputs: Inputs, loss: LossGradient, held: Any
    ) -> Weights:
        """Compute the gradients of a loss with respect to the parameters `of`."""
        own = {place: weights[place] for place in of}
        others = {place: values for place, values in weights.items() if place not in own}
        total = {place: np.zeros(values.shape, np.float32) for place, values in own.items()}
        for rows, size, part in self._parts(inputs, held):
            scores = np.asarray(running.answers(self.graph, self.state, weights, *part, ())[0])
            seed = np.zeros_like(scores)
            seed[:size] = compute_gradient(loss, scores[:size], rows)
            found = running.weight_gradients(self.graph, self.state, own, others, *part, seed)
            for place, values in found.items():
                total[place] += np.asarray(values)
        return total

    def gradients_at_outputs(
        self, weights: Values, inputs: Inputs, seed: Array, names: tuple[str, ...]
    ) -> dict[str, tuple[Array, ...]]:
        """Vector-Jacobian products of the scores with respect to the outputs of some layers, one array for each use."""
        found = []
        for rows, size, (given, _) in self._parts(inputs, NOTHING):
            padded = self.pad(np.asarray(seed[rows], np.float32))
            uses = running.output_gradients(self.graph, self.state, weights, given, padded, names)
            found.append(jax.tree.map(lambda array, n=size: np.array(array)[:n], uses))
        whole = jax.tree.map(lambda *arrays: np.concatenate(arrays), *found)
        return {name: tuple(whole[name]) for name in names}

    def _parts(self, inputs: Inputs, held: Any) -> Iterator[tuple[slice, int, tuple[Any, Any]]]:
        """Yield the rows of each batch, their number, and the padded arrays."""
        whole = as_numbers(inputs), held
        for rows in self.row_batches(count(inputs)):
            yield rows, rows.stop - rows.start, self.put(jax.tree.map(lambda array, r=rows: self.pad(array[r]), whole))

    def padded_size(self, n: int) -> int:
        """Return the next power of two, so that few shapes are compiled."""
        return max(MIN_BATCH_ROWS, 1 << (n - 1).bit_length()) if n else MIN_BATCH_ROWS


def as_numbers(inputs: Inputs) -> Any:
    """Convert inputs to the 32-bit dtypes JAX computes with."""
    if isinstance(inputs, Mapping):
        return {name: as_numbers(array) for name, array in inputs.items()}
    return inputs.astype({8: f"{inputs.dtype.kind}4"}.get(inputs.dtype.itemsize, inputs.dtype))


def activations(uses: Sequence[Mapping[str, Any]]) -> tuple[Activation, ...]:
    """Convert the uses of a layer to `Activation` objects."""
    return tuple(Activation(use["entering"], use["leaving"]) for use in uses)
