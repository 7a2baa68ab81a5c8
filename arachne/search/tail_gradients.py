"""Traces and gradients of whole dense layers at the end of a model, from what was kept of one pass, in NumPy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from arachne.backend import Pull, Trace, Weights, pulled
from arachne.evaluate.routes.functions import Function, slope
from arachne.values import Activation, Array, batches


@dataclass(frozen=True, eq=False)
class TailLayer:
    """One dense layer of a tail and what flows through it in the original model.

    Attributes:
        name: The layer.
        weight: float32 `(out, in)`.
        functions: The functions that follow it.
        entering: float32 `(n, in)`.
        leaving: float32 `(n, out)`.
    """

    name: str
    weight: Array
    functions: tuple[Function, ...]
    entering: Array
    leaving: Array

    def held(self) -> TailLayer:
        """The same with everything in memory."""
        return replace(self, entering=np.asarray(self.entering), leaving=np.asarray(self.leaving))


class TailTrace(Trace):
    """As a backend's, of layers of the tail."""

    def __init__(self, layers: Sequence[TailLayer], wanted: Sequence[str]) -> None:
        """Trace some layers of a tail.

        Args:
            layers: The layers from the first that is wanted to the scores.
            wanted: The names of those that are traced.
        """
        layers = [one.held() for one in layers]
        self.n = len(layers[0].leaving)
        self.activations = {
            one.name: (Activation({"weight": one.entering}, one.leaving),) for one in layers if one.name in wanted
        }
        self._layers = layers

    def _output_gradients(self, seed: Array) -> Mapping[str, tuple[Array, ...]]:
        found = carried_back(self._layers, seed.astype(np.float32))
        return {name: (found[name],) for name in self.activations}


def carried_back(layers: Sequence[TailLayer], gradient: Array) -> dict[str, Array]:
    """From the gradient at the scores `(n, classes)` to that of what leaves each layer, `(n, out)` by name."""
    found = {layers[-1].name: gradient}
    for behind, layer in zip(layers[:0:-1], layers[-2::-1], strict=True):
        steepness = slope(layer.functions)
        if steepness is None:
            raise ValueError("a tail is made of functions whose slope is known")
        gradient = (gradient @ behind.weight) * steepness(layer.leaving)
        found[layer.name] = gradient
    return found


def weight_gradients(
    layers: Sequence[TailLayer], pull: Pull, parameters: Sequence[tuple[str, str]], rows: int
) -> Weights:
    """As `ModelBackend.weight_gradients`, of layers of a tail, with this many inputs at a time."""
    by_name = {one.name: one for one in layers}
    found: dict[tuple[str, str], Array] = {}
    for part in batches(len(layers[0].leaving), rows):
        own = [TailLayer(one.name, one.weight, one.functions, one.entering[part], one.leaving[part]) for one in layers]
        seed = pulled(pull, own[-1].leaving, part).astype(np.float32)
        gradients = carried_back(own, seed)
        for name, parameter in parameters:
            gradient, total = gradients[name], found.get((name, parameter))
            more = gradient.sum(axis=0) if parameter == "bias" else gradient.T @ by_name[name].entering[part]
            found[name, parameter] = more if total is None else np.add(total, more, out=total)
    for name, parameter in parameters if not found else ():
        weight = by_name[name].weight
        found[name, parameter] = np.zeros(weight.shape[:1] if parameter == "bias" else weight.shape, np.float32)
    return found
