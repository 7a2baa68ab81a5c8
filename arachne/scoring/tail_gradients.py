"""Traces and gradients of whole dense layers at the end of a model, from cached activations, in NumPy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from arachne.model.backend import LossGradient, Trace, Weights, compute_gradient
from arachne.model.values import Activation, Array, batches
from arachne.scoring.functions import Function, slope


@dataclass(frozen=True, eq=False)
class TailLayer:
    """One dense layer of a tail and its activations in the original model.

    Attributes:
        name: The layer.
        weight: float32 `(out, in)`.
        bias: float32 `(out,)`; None if it has none.
        functions: The functions that follow it.
        entering: float32 `(n, in)`.
        leaving: float32 `(n, out)`.
    """

    name: str
    weight: Array
    functions: tuple[Function, ...]
    entering: Array
    leaving: Array
    bias: Array | None = None

    def load(self) -> TailLayer:
        """Return the layer with everything in memory."""
        return replace(self, entering=np.asarray(self.entering), leaving=np.asarray(self.leaving))


class TailTrace(Trace):
    """A trace of layers of the tail."""

    def __init__(self, layers: Sequence[TailLayer], wanted: Sequence[str]) -> None:
        """Trace some layers of a tail.

        Args:
            layers: The layers from the first that is wanted to the scores.
            wanted: The names of those that are traced.
        """
        layers = [one.load() for one in layers]
        self.n = len(layers[0].leaving)
        self.activations = {
            one.name: (Activation({"weight": one.entering}, one.leaving),) for one in layers if one.name in wanted
        }
        self._layers = layers

    def _output_gradients(self, seed: Array) -> Mapping[str, tuple[Array, ...]]:
        found = carry_back(self._layers, seed.astype(np.float32))
        return {name: (found[name],) for name in self.activations}


def carry_back(layers: Sequence[TailLayer], gradient: Array) -> dict[str, Array]:
    """Propagate the gradient at the scores `(n, classes)` back to each layer's outputs, `(n, out)` by name."""
    found = {layers[-1].name: gradient}
    for behind, layer in zip(layers[:0:-1], layers[-2::-1], strict=True):
        steepness = slope(layer.functions)
        if steepness is None:
            raise ValueError("a tail is made of functions whose slope is known")
        gradient = (gradient @ behind.weight) * steepness(layer.leaving)
        found[layer.name] = gradient
    return found


def weight_gradients(
    layers: Sequence[TailLayer], loss_gradient: LossGradient, parameters: Sequence[tuple[str, str]], rows: int
) -> Weights:
    """Return gradients of a loss by parameters of a tail's layers, computed for this many inputs at a time."""
    by_name = {one.name: one for one in layers}
    found: dict[tuple[str, str], Array] = {}
    for part in batches(len(layers[0].leaving), rows):
        own = [replace(one, entering=one.entering[part], leaving=one.leaving[part]) for one in layers]
        seed = compute_gradient(loss_gradient, own[-1].leaving, part).astype(np.float32)
        gradients = carry_back(own, seed)
        for name, parameter in parameters:
            gradient, total = gradients[name], found.get((name, parameter))
            more = gradient.sum(axis=0) if parameter == "bias" else gradient.T @ by_name[name].entering[part]
            found[name, parameter] = more if total is None else np.add(total, more, out=total)
    for name, parameter in parameters if not found else ():
        weight = by_name[name].weight
        found[name, parameter] = np.zeros(weight.shape[:1] if parameter == "bias" else weight.shape, np.float32)
    return found
