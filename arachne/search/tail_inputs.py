"""What flows through the dense layers at the end of a model, computed once for all searches there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from arachne.backend import ModelBackend
from arachne.evaluate.routes.functions import apply, chain
from arachne.values import Array, Inputs, LayerInfo, batches, count, take

ROWS = 512
"""How many inputs are run at a time."""

LARGEST = 1 << 30
"""How many bytes may be kept of what flows through one layer."""


class TailInputs:
    """What enters and leaves each layer of a dense tail in the original model.

    The framework runs everything up to the tail's first layer; the layers behind it are run in NumPy when asked for.
    """

    def __init__(self, backend: ModelBackend, layers: Sequence[LayerInfo], entering: Array, leaving: Array) -> None:
        self._backend = backend
        self._layers = {info.name: number for number, info in enumerate(layers)}
        self._infos = layers
        self._entering = [entering]
        self._leaving = [leaving]

    @classmethod
    def of(cls, backend: ModelBackend, inputs: Inputs) -> TailInputs | None:
        """The longest tail that fits into memory; None where the last layer is not dense, or takes no vectors."""
        layers = dense_tail(backend)
        while layers and 4 * count(inputs) * sum(layers[0].parameters["weight"].shape) > LARGEST:
            layers = layers[1:]
        if not layers:
            return None
        entering, leaving = [], []
        for rows in batches(count(inputs), ROWS):
            (use,) = backend.activations(take(inputs, rows), layers[0].name)
            if use.leaving.ndim != 2 or use.entering["weight"].ndim != 2:
                return None
            entering.append(use.entering["weight"].astype(np.float32))
            leaving.append(use.leaving.astype(np.float32))
        return cls(backend, layers, np.concatenate(entering), np.concatenate(leaving))

    def __contains__(self, layer: str) -> bool:
        return layer in self._layers

    def entering(self, layer: str) -> Array:
        """What enters a layer, float32 `(n, in)`."""
        self._run_to(layer)
        return self._entering[self._layers[layer]]

    def leaving(self, layer: str) -> Array:
        """What leaves a layer before its function, float32 `(n, out)`."""
        self._run_to(layer)
        return self._leaving[self._layers[layer]]

    def _run_to(self, layer: str) -> None:
        for number in range(len(self._leaving), self._layers[layer] + 1):
            weights = self._backend.get_weights(self._infos[number].name)
            entering = apply(chain(self._infos[number - 1].followed_by) or (), self._leaving[-1])
            leaving = entering @ weights["weight"].astype(np.float32).T
            self._entering.append(entering)
            self._leaving.append(leaving + weights["bias"].astype(np.float32) if "bias" in weights else leaving)


def dense_tail(backend: ModelBackend) -> list[LayerInfo]:
    """The dense layers at the end of a model, each used once and joined by functions that are known here."""
    found: list[LayerInfo] = []
    for info in reversed(backend.layers):
        functions = chain(info.followed_by)
        if info.kind != "dense" or info.uses != 1 or functions is None or (not found and functions):
            break
        if found and found[-1].parameters["weight"].shape[1] != info.parameters["weight"].shape[0]:
            break
        found.append(info)
    return found[::-1]
