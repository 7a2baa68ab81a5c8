"""A model run on any number of inputs: in batches, padded to a power of two, so that few shapes are compiled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from arachne.backend import Pull, Weights, pulled
from arachne.values import Activation, Array, Inputs, batches, count
from arachne_flax import running
from arachne_flax.running import NOTHING, Values

BATCH = 1024
"""The most inputs that go through a model at once."""

SMALLEST = 8


@dataclass(frozen=True)
class Model:
    """A model's structure and what it holds beside its weights, on a device; weights are given with every question.

    Attributes:
        graph: The structure; models of one structure share what is compiled.
        state: Its variables, those of its weights included, which are not used.
        device: Where it computes.
    """

    graph: Any
    state: Any
    device: Any

    def put(self, values: Any) -> Any:
        """Arrays on the model's device."""
        return jax.device_put(values, self.device)

    def scores(self, weights: Values, inputs: Inputs, held: Any = NOTHING) -> Array:
        """Class scores `(n, classes)`; `held` is what is given instead of computed, row by row."""
        found = [
            np.asarray(running.answers(self.graph, self.state, weights, *part, ())[0])[:size]
            for _, size, part in self._parts(inputs, held)
        ]
        return np.concatenate(found)

    def passed(self, weights: Values, inputs: Inputs, names: tuple[str, ...]) -> dict[str, tuple[dict[str, Any], ...]]:
        """What passes through some layers: for every use `entering`, `leaving` and, in Flax' layout, the `value`."""
        found = []
        for _, size, part in self._parts(inputs, NOTHING):
            _, uses = running.answers(self.graph, self.state, weights, *part, names)
            found.append(jax.tree.map(lambda array, n=size: np.asarray(array)[:n], uses))
        whole = jax.tree.map(lambda *arrays: np.concatenate(arrays), *found)
        return {name: tuple(whole[name]) for name in names}

    def gradients(
        self, weights: Values, of: Sequence[tuple[str, str]], inputs: Inputs, pull: Pull, held: Any
    ) -> Weights:
        """Gradients of a loss with respect to the parameters `of`, by their places."""
        own = {place: weights[place] for place in of}
        others = {place: values for place, values in weights.items() if place not in own}
        total = {place: np.zeros(values.shape, np.float32) for place, values in own.items()}
        for rows, size, part in self._parts(inputs, held):
            scores = np.asarray(running.answers(self.graph, self.state, weights, *part, ())[0])
            seed = np.zeros_like(scores)
            seed[:size] = pulled(pull, scores[:size], rows)
            found = running.weight_gradients(self.graph, self.state, own, others, *part, seed)
            for place, values in found.items():
                total[place] += np.asarray(values)
        return total

    def gradients_at_outputs(
        self, weights: Values, inputs: Inputs, seed: Array, names: tuple[str, ...]
    ) -> dict[str, tuple[Array, ...]]:
        """Vector-Jacobian products of the scores with respect to what leaves some layers, one array for each use."""
        found = []
        for rows, size, (given, _) in self._parts(inputs, NOTHING):
            padded = np.zeros((_size(size), seed.shape[1]), np.float32)
            padded[:size] = seed[rows]
            uses = running.output_gradients(self.graph, self.state, weights, given, padded, names)
            found.append(jax.tree.map(lambda array, n=size: np.array(array)[:n], uses))
        whole = jax.tree.map(lambda *arrays: np.concatenate(arrays), *found)
        return {name: tuple(whole[name]) for name in names}

    def _parts(self, inputs: Inputs, held: Any) -> Iterator[tuple[slice, int, tuple[Any, Any]]]:
        """For each batch its rows, how many there are, and its padded arrays."""
        n = count(inputs)
        for rows in list(batches(n, BATCH)) or [slice(0, 0)]:
            size = rows.stop - rows.start
            yield (
                rows,
                size,
                self.put(jax.tree.map(lambda array, r=rows: _padded(array, r), (as_numbers(inputs), held))),
            )


def as_numbers(inputs: Inputs) -> Any:
    """Inputs in the dtypes JAX computes with: 32 bits."""
    if isinstance(inputs, Mapping):
        return {name: as_numbers(array) for name, array in inputs.items()}
    return inputs.astype({8: f"{inputs.dtype.kind}4"}.get(inputs.dtype.itemsize, inputs.dtype))


def activations(uses: Sequence[Mapping[str, Any]]) -> tuple[Activation, ...]:
    """The uses of a layer as Arachne wants them."""
    return tuple(Activation(use["entering"], use["leaving"]) for use in uses)


def _padded(array: Array, rows: slice) -> Array:
    part = array[rows]
    padded = np.zeros((_size(len(part)), *array.shape[1:]), array.dtype)
    padded[: len(part)] = part
    return padded


def _size(n: int) -> int:
    return max(SMALLEST, 1 << (n - 1).bit_length()) if n else SMALLEST
