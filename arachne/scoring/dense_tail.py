"""DenseTailScorer: scores and gradients of the touched weights in the dense layers at the end of a model, in NumPy.

With A the inputs of the touched weights in the first touched layer, S its touched units, and z0 the original outputs of
a layer:

    forward     z_S = z0_S + A ΔWᵀ,   z' = z0' + (f(z_S) - f(z0_S)) W'_Sᵀ + ΔW' of the touched weights in that layer,
                then every layer behind it in full: z'' = W'' f'(z') + b''
    backward    d loss / d ΔW = g_Sᵀ A,   with g_S = (g' W'_S) * f'(z_S) propagated back from the scores

A step costs a small part of a pass through whole layers, because most weights neither change nor need a gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from arachne.data.lazy.spill_file import map_rows
from arachne.model.backend import LossGradient, ModelBackend
from arachne.model.values import Array, Inputs, batches
from arachne.scoring.base import DecisionScorer, Scorer, ignore_overflow
from arachne.scoring.cut import Cuts, CutScorer
from arachne.scoring.dense_layers import DenseLayer, find_tail
from arachne.scoring.functions import apply, slope
from arachne.scoring.tail_cache import TAIL_BATCH, TailCache
from arachne.scoring.threads import one_thread
from arachne.tasks import DecisionRows
from arachne.weights.selection import Selection


@dataclass(eq=False)
class ForwardState:
    """The activations of a forward pass over some rows that the backward pass needs.

    Attributes:
        sources: The inputs of the first layer's touched weights, `(rows, sources)`.
        touched: The outputs of its touched units, `(rows, units)`.
        behind: The inputs of the second layer's touched weights, `(rows, sources)`.
        leaving: The outputs of each layer from the second on, or of the only layer, `(rows, out)`.
    """

    sources: Array
    touched: Array
    behind: Array
    leaving: list[Array]


class DenseTailScorer(Scorer):
    """Scores of a dense tail."""

    def __init__(self, layers: Sequence[DenseLayer], tail: TailCache) -> None:
        """Take the original activations of the first two layers from the cache.

        Args:
            layers: The layers from the first touched one to the scores.
            tail: Their activations in the original model.
        """
        # The matrices of the first two are read here and never again; a wide one is large.
        self._layers = [replace(one, weight=one.weight[:0].copy()) for one in layers[:2]] + list(layers[2:])
        first = layers[0]
        units = first.touched.units
        self._sources = tail.sources(first.info.name, first.touched.sources)
        self._touched = map_rows(tail.leaving(first.info.name), lambda rows: np.ascontiguousarray(rows[:, units]))
        self._leaving = tail.leaving(layers[min(1, len(layers) - 1)].info.name)
        self._k = sum(len(layer.touched) for layer in layers)
        if len(layers) > 1:
            second = layers[1]
            self._activated = map_rows(self._touched, lambda rows: apply(first.functions, rows))
            self._behind = tail.sources(second.info.name, second.touched.sources)
            self._from_units = np.ascontiguousarray(second.weight[:, units])
            _, self._among_units, self._among_sources = np.intersect1d(
                units, second.touched.sources, assume_unique=True, return_indices=True
            )

    @classmethod
    def of(cls, backend: ModelBackend, suspects: Selection, tail: TailCache) -> DenseTailScorer | None:
        """Make the scorer of the tail from the first suspect on; None if a layer is not dense, or not in `tail`."""
        layers = find_tail(backend, suspects, rounded=tail.rounded)
        if layers is None or layers[0].info.name not in tail or any(slope(one.functions) is None for one in layers):
            return None
        return cls(layers, tail)

    @ignore_overflow()
    @one_thread()
    def scores(self, values: Array, rows: Array) -> Array:
        changes, weights = self._changes(values)
        return np.concatenate(
            [self._forward(changes, weights, rows[part]).leaving[-1] for part in batches(len(rows), TAIL_BATCH)]
            or [self._forward(changes, weights, rows).leaving[-1]]
        )

    @ignore_overflow()
    @one_thread()
    def gradients(self, values: Array, loss_gradient: LossGradient, rows: Array) -> Array:
        changes, weights = self._changes(values)
        found = np.zeros(self._k)
        for part in batches(len(rows), TAIL_BATCH):
            passed = self._forward(changes, weights, rows[part])
            self._backward(changes, weights, passed, loss_gradient(passed.leaving[-1], part), found)
        return found

    def _changes(self, values: Array) -> tuple[list[Array], list[tuple[Array, Array]]]:
        """Return ΔW `(units, sources)` of the first two layers, and weight and bias of every further layer."""
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

    def _forward(self, changes: Sequence[Array], weights: Sequence[tuple[Array, Array]], rows: Array) -> ForwardState:
        """Run the layers from the first touched one to the scores."""
        sources = self._sources[rows]
        touched = self._touched[rows] + sources @ changes[0].T
        leaving = self._leaving[rows]
        if len(self._layers) == 1:
            leaving[:, self._layers[0].touched.units] = touched
            return ForwardState(sources, touched, touched[:, :0], [leaving])
        activated = apply(self._layers[0].functions, touched)
        leaving += (activated - self._activated[rows]) @ self._from_units.T
        behind, second = self._behind[rows], self._layers[1].touched
        if len(second):
            behind[:, self._among_sources] = activated[:, self._among_units]
            leaving[:, second.units] += behind @ changes[1].T
        passed = ForwardState(sources, touched, behind, [leaving])
        for (layer, _), (weight, bias) in zip(pairwise(self._layers[1:]), weights, strict=True):
            passed.leaving.append(apply(layer.functions, passed.leaving[-1]) @ weight.T + bias)
        return passed

    def _backward(
        self,
        changes: Sequence[Array],
        weights: Sequence[tuple[Array, Array]],
        passed: ForwardState,
        seed: Array,
        found: Array,
    ) -> None:
        """Add the gradient of every suspect to `found`."""
        gradient = seed.astype(np.float32, copy=False)
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
    """Add the gradient of a layer's suspects to `found`, from the gradient at its outputs `(rows, out)`."""
    touched = layer.touched
    whole = gradient[:, touched.units].T @ entering
    found[touched.numbers] += whole[touched.rows, touched.columns]


def _slope(layer: DenseLayer, left: Array) -> Array:
    steepness = slope(layer.functions)
    if steepness is None:
        raise ValueError("a tail is made of functions whose slope is known")
    return steepness(left)


def make_scorer(
    backend: ModelBackend,
    inputs: Inputs,
    suspects: Selection,
    tail: TailCache | None = None,
    cuts: tuple[Cuts, Array | None] | None = None,
    decisions: DecisionRows | None = None,
    rounded: TailCache | None = None,
) -> Scorer:
    """Make the fastest `Scorer` for these suspects: NumPy for dense layers at the end of a model, else a cut.

    Args:
        backend: The model.
        inputs: The inputs.
        suspects: The weights whose values vary.
        tail: The activations of the model's dense tail for these inputs, if they have been computed already.
        cuts: Shared cuts, and the numbers of these inputs in them; made here when None.
        decisions: The decisions to score, where an input may have several. The kernel of a dense tail only supports one
            label for each input, so these use the cut.
        rounded: The activations of a tail of whole numbers, for gradients.
    """
    if decisions is not None:
        shared, numbers = cuts or (Cuts(backend, inputs), None)
        return DecisionScorer(CutScorer(backend, shared, suspects, numbers), decisions)
    tail = tail or TailCache.of(backend, inputs)
    found = None if tail is None else DenseTailScorer.of(backend, suspects, tail)
    shared, numbers = cuts or (Cuts(backend, inputs), None)
    if found is not None:
        return found
    cut = CutScorer(backend, shared, suspects, numbers)
    smooth = None if rounded is None else DenseTailScorer.of(backend, suspects, rounded)
    if smooth is None or rounded is None:
        return cut
    from arachne.scoring.rounded import RoundedScorer

    return RoundedScorer(cut, smooth, suspects.values, len(rounded))
