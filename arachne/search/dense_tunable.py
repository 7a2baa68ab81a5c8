"""Gradient steps on the dense layers at the end of a model, in NumPy and on touched weights alone.

With A the inputs that touched weights of the first touched layer are multiplied with, and S its touched units:

    forward     z_S = z0_S + A ΔWᵀ,   then every layer behind it as it is: z' = W' f(z) + b'
    backward    d loss / d ΔW = g_Sᵀ A,   with g = (g' W') * f'(z) carried back from the scores

A step costs a small part of a pass through whole layers, in which most weights are neither changed nor asked about.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from arachne.backend import ModelBackend, Pull
from arachne.evaluate.routes.functions import apply, slope
from arachne.evaluate.routes.tail_layers import DenseLayer, find_tail
from arachne.search.tail_inputs import ROWS, TailInputs
from arachne.search.tunable import BehindCut, Tunable
from arachne.suspects import Suspects
from arachne.values import Array, Inputs, batches


class DenseTunable(Tunable):
    """A dense tail."""

    def __init__(self, layers: Sequence[DenseLayer], entering: Array, leaving: Array) -> None:
        """Keep what the first touched layer starts from.

        Args:
            layers: The layers from the first touched one to the scores.
            entering: What its touched weights are multiplied with, float32 `(n, sources)`.
            leaving: What leaves it in the original model, float32 `(n, out)`.
        """
        self._layers = layers
        self._entering = entering
        self._leaving = leaving
        self._k = sum(len(layer.touched) for layer in layers)

    @classmethod
    def of(cls, backend: ModelBackend, suspects: Suspects, tail: TailInputs) -> DenseTunable | None:
        """The tail behind the first suspect; None where a layer of it is not dense, or lies before `tail`."""
        layers = find_tail(backend, suspects)
        if layers is None or layers[0].info.name not in tail or any(slope(one.functions) is None for one in layers):
            return None
        name, touched = layers[0].info.name, layers[0].touched
        return cls(layers, np.ascontiguousarray(touched.entering(tail.entering(name).T).T), tail.leaving(name))

    def scores(self, values: Array, rows: Array) -> Array:
        weights = self._weights(values)
        return np.concatenate(
            [self._forward(weights, rows[part])[-1] for part in batches(len(rows), ROWS)]
            or [self._forward(weights, rows)[-1]]
        )

    def gradients(self, values: Array, pull: Pull, rows: Array) -> Array:
        weights = self._weights(values)
        found = np.zeros(self._k)
        for part in batches(len(rows), ROWS):
            passed = self._forward(weights, rows[part])
            self._backward(weights, rows[part], passed, pull(passed[-1], part), found)
        return found

    def _weights(self, values: Array) -> list[tuple[Array, Array]]:
        """ΔW of the first layer `(units, sources)` with its bias's part; weight and bias of every layer behind it."""
        first, *behind = self._layers
        found = [(first.touched.change(values[None])[0], np.zeros(0, np.float32))]
        for layer in behind:
            touched, weight, bias = layer.touched, layer.weight, layer.bias[:, 0]
            if len(touched):
                change = touched.change(values[None])[0]
                whole = np.zeros((len(weight), weight.shape[1] + 1), np.float32)
                whole[np.ix_(touched.units, touched.sources)] = change  # a bias's number is -1: the last column
                weight, bias = weight + whole[:, :-1], bias + whole[:, -1]
            found.append((weight, bias))
        return found

    def _forward(self, weights: Sequence[tuple[Array, Array]], rows: Array) -> list[Array]:
        """What leaves each layer, `(rows, out)`."""
        leaving = self._leaving[rows]
        leaving[:, self._layers[0].touched.units] += self._entering[rows] @ weights[0][0].T
        passed = [leaving]
        for (layer, _), (weight, bias) in zip(pairwise(self._layers), weights[1:], strict=True):
            passed.append(apply(layer.functions, passed[-1]) @ weight.T + bias)
        return passed

    def _backward(
        self, weights: Sequence[tuple[Array, Array]], rows: Array, passed: Sequence[Array], pulled: Array, found: Array
    ) -> None:
        """Add the gradient of every suspect to `found`."""
        gradient = pulled.astype(np.float32, copy=False)
        for number in range(len(self._layers) - 1, -1, -1):
            touched = self._layers[number].touched
            before = self._layers[number - 1] if number else None
            if len(touched):
                entering = (
                    self._entering[rows]
                    if before is None
                    else touched.entering(apply(before.functions, passed[number - 1]).T).T
                )
                whole = gradient[:, touched.units].T @ entering
                found[touched.numbers] += whole[touched.rows, touched.columns]
            if before is not None:
                steepness = slope(before.functions)
                if steepness is None:
                    raise ValueError("a tail is made of functions whose slope is known")
                gradient = (gradient @ weights[number][0]) * steepness(passed[number - 1])


def make_tunable(backend: ModelBackend, inputs: Inputs, suspects: Suspects, tail: TailInputs | None = None) -> Tunable:
    """The fastest `Tunable` for these suspects: NumPy for dense layers at the end of a model, a cut for all others.

    Args:
        backend: The model.
        inputs: The inputs.
        suspects: The weights whose values vary.
        tail: What flows through the model's dense tail for these inputs, if it has been computed already.
    """
    tail = tail or TailInputs.of(backend, inputs)
    found = None if tail is None else DenseTunable.of(backend, suspects, tail)
    return found or BehindCut(backend, inputs, suspects)
