"""Gradient steps on the dense layers at the end of a model, in NumPy and on touched weights alone.

With A the inputs that touched weights of the first touched layer are multiplied with, S its touched units, and z0 what
leaves a layer in the original model:

    forward     z_S = z0_S + A ΔWᵀ,   z' = z0' + (f(z_S) - f(z0_S)) W'_Sᵀ + what touched weights of that layer add,
                then every layer behind it as it is: z'' = W'' f'(z') + b''
    backward    d loss / d ΔW = g_Sᵀ A,   with g_S = (g' W'_S) * f'(z_S) carried back from the scores

A step costs a small part of a pass through whole layers, in which most weights are neither changed nor asked about.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from arachne.backend import ModelBackend, Pull
from arachne.data.spill import each_row
from arachne.evaluate.routes.functions import apply, slope
from arachne.evaluate.routes.tail_layers import DenseLayer, find_tail
from arachne.evaluate.routes.threads import one_thread
from arachne.search.tail_inputs import ROWS, TailInputs
from arachne.search.tunable import BehindCut, Cuts, Tunable
from arachne.suspects import Suspects
from arachne.values import Array, Inputs, batches


@dataclass(eq=False)
class _Passed:
    """What a forward pass over some rows leaves for the way back.

    Attributes:
        sources: What the first layer's touched weights are multiplied with, `(rows, sources)`.
        touched: What leaves its touched units, `(rows, units)`.
        behind: The same of the second layer's touched weights, `(rows, sources)`.
        leaving: What leaves each layer from the second on, or the first where it is the last, `(rows, out)`.
    """

    sources: Array
    touched: Array
    behind: Array
    leaving: list[Array]


class DenseTunable(Tunable):
    """A dense tail."""

    def __init__(self, layers: Sequence[DenseLayer], tail: TailInputs) -> None:
        """Keep what the first touched layer and the one behind it start from.

        Args:
            layers: The layers from the first touched one to the scores.
            tail: What flows through them in the original model.
        """
        self._layers = layers
        first = layers[0]
        units = first.touched.units
        self._sources = tail.sources(first.info.name, first.touched.sources)
        self._touched = each_row(tail.leaving(first.info.name), lambda rows: np.ascontiguousarray(rows[:, units]))
        self._leaving = tail.leaving(layers[min(1, len(layers) - 1)].info.name)
        self._k = sum(len(layer.touched) for layer in layers)
        if len(layers) > 1:
            second = layers[1]
            self._activated = each_row(self._touched, lambda rows: apply(first.functions, rows))
            self._behind = tail.sources(second.info.name, second.touched.sources)
            self._from_units = np.ascontiguousarray(second.weight[:, units])
            _, self._among_units, self._among_sources = np.intersect1d(
                units, second.touched.sources, assume_unique=True, return_indices=True
            )

    @classmethod
    def of(cls, backend: ModelBackend, suspects: Suspects, tail: TailInputs) -> DenseTunable | None:
        """The tail behind the first suspect; None where a layer of it is not dense, or lies before `tail`."""
        layers = find_tail(backend, suspects)
        if layers is None or layers[0].info.name not in tail or any(slope(one.functions) is None for one in layers):
            return None
        return cls(layers, tail)

    @one_thread()
    def scores(self, values: Array, rows: Array) -> Array:
        changes, weights = self._changes(values)
        return np.concatenate(
            [self._forward(changes, weights, rows[part]).leaving[-1] for part in batches(len(rows), ROWS)]
            or [self._forward(changes, weights, rows).leaving[-1]]
        )

    @one_thread()
    def gradients(self, values: Array, pull: Pull, rows: Array) -> Array:
        changes, weights = self._changes(values)
        found = np.zeros(self._k)
        for part in batches(len(rows), ROWS):
            passed = self._forward(changes, weights, rows[part])
            self._backward(changes, weights, passed, pull(passed.leaving[-1], part), found)
        return found

    def _changes(self, values: Array) -> tuple[list[Array], list[tuple[Array, Array]]]:
        """ΔW `(units, sources)` of the first two layers; weight and bias of every layer behind these."""
        changes = [layer.touched.change(values[None])[0] for layer in self._layers[:2]]
        weights = []
        for layer in self._layers[2:]:
            touched, weight, bias = layer.touched, layer.weight, layer.bias[:, 0]
            if len(touched):
                whole = np.zeros((len(weight), weight.shape[1] + 1), np.float32)
                change = touched.change(values[None])[0]
                whole[np.ix_(touched.units, touched.sources)] = change  # a bias's number is -1: the last column
                weight, bias = weight + whole[:, :-1], bias + whole[:, -1]
            weights.append((weight, bias))
        return changes, weights

    def _forward(self, changes: Sequence[Array], weights: Sequence[tuple[Array, Array]], rows: Array) -> _Passed:
        """From the first touched layer to the scores."""
        sources = self._sources[rows]
        touched = self._touched[rows] + sources @ changes[0].T
        leaving = self._leaving[rows]
        if len(self._layers) == 1:
            leaving[:, self._layers[0].touched.units] = touched
            return _Passed(sources, touched, touched[:, :0], [leaving])
        activated = apply(self._layers[0].functions, touched)
        leaving += (activated - self._activated[rows]) @ self._from_units.T
        behind, second = self._behind[rows], self._layers[1].touched
        if len(second):
            behind[:, self._among_sources] = activated[:, self._among_units]
            leaving[:, second.units] += behind @ changes[1].T
        passed = _Passed(sources, touched, behind, [leaving])
        for (layer, _), (weight, bias) in zip(pairwise(self._layers[1:]), weights, strict=True):
            passed.leaving.append(apply(layer.functions, passed.leaving[-1]) @ weight.T + bias)
        return passed

    def _backward(
        self,
        changes: Sequence[Array],
        weights: Sequence[tuple[Array, Array]],
        passed: _Passed,
        pulled: Array,
        found: Array,
    ) -> None:
        """Add the gradient of every suspect to `found`."""
        gradient = pulled.astype(np.float32, copy=False)
        for number in range(len(self._layers) - 1, 1, -1):
            layer, before, left = self._layers[number], self._layers[number - 1], passed.leaving[number - 2]
            if len(layer.touched):
                _add(layer, gradient, layer.touched.entering(apply(before.functions, left).T).T, found)
            gradient = (gradient @ weights[number - 2][0]) * _slope(before, left)
        first, second = self._layers[0], self._layers[min(1, len(self._layers) - 1)]
        if second is first:
            _add(first, gradient, passed.sources, found)
            return
        back = gradient @ self._from_units
        if len(second.touched):
            _add(second, gradient, passed.behind, found)
            change = changes[1][:, self._among_sources]
            back[:, self._among_units] += gradient[:, second.touched.units] @ change
        back *= _slope(first, passed.touched)
        touched = first.touched
        found[touched.numbers] += (back.T @ passed.sources)[touched.rows, touched.columns]


def _add(layer: DenseLayer, gradient: Array, entering: Array, found: Array) -> None:
    """Add the gradient of a layer's suspects, from that of all its units `(rows, out)`, to `found`."""
    touched = layer.touched
    whole = gradient[:, touched.units].T @ entering
    found[touched.numbers] += whole[touched.rows, touched.columns]


def _slope(layer: DenseLayer, left: Array) -> Array:
    steepness = slope(layer.functions)
    if steepness is None:
        raise ValueError("a tail is made of functions whose slope is known")
    return steepness(left)


def make_tunable(
    backend: ModelBackend,
    inputs: Inputs,
    suspects: Suspects,
    tail: TailInputs | None = None,
    cuts: tuple[Cuts, Array | None] | None = None,
) -> Tunable:
    """The fastest `Tunable` for these suspects: NumPy for dense layers at the end of a model, a cut for all others.

    Args:
        backend: The model.
        inputs: The inputs.
        suspects: The weights whose values vary.
        tail: What flows through the model's dense tail for these inputs, if it has been computed already.
        cuts: Cuts that are shared with others, and which of their inputs these are; None where there are none.
    """
    tail = tail or TailInputs.of(backend, inputs)
    found = None if tail is None else DenseTunable.of(backend, suspects, tail)
    shared, numbers = cuts or (Cuts(backend, inputs), None)
    return found or BehindCut(backend, shared, suspects, numbers)
