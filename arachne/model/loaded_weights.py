"""The weights in a file of a backend that has no reader of its own for them: the model is loaded and saved whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from arachne.model.values import Array, Weights
from arachne.model.weight_file import WeightFile

if TYPE_CHECKING:
    from arachne.model.backend import ModelBackend


class LoadedWeights(WeightFile):
    """The weights of a model that is loaded to read them, and loaded again and saved to change them.

    Args:
        path: The model's file.
        load: Opens it.
    """

    def __init__(self, path: Path, load: Callable[[Path], ModelBackend]) -> None:
        self.path = path
        self._load = load
        self._backend = load(path)

    def reopen(self, path: Path) -> LoadedWeights:
        """Open another file of this kind."""
        return LoadedWeights(path, self._load)

    def parameters(self) -> Sequence[tuple[str, str]]:
        """Return the parameters of all layers that can be repaired."""
        return [(info.name, parameter) for info in self._backend.layers for parameter in info.parameters]

    def _read(self, layer: str, parameter: str) -> Array:
        return np.array(self._backend.get_weights(layer)[parameter])

    def _dtype(self, layer: str, parameter: str) -> str:
        return self._backend.info(layer).parameters[parameter].dtype

    def _rewrite(self, destination: Path, weights: Weights) -> None:
        copy = self._load(self.path)
        for (layer, parameter), values in weights.items():
            copy.set_weights(layer, parameter, values)
        copy.save(destination)
