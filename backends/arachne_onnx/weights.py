"""The weights in an ONNX file: read and written by address, without a session."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from arachne.backend import WeightFile, Weights
from arachne.dtypes import CARRIERS
from arachne.errors import ModelError, UnknownLayerError, did_you_mean
from arachne.values import Array
from arachne_onnx import io
from arachne_onnx.layers import find_layers
from arachne_onnx.stored import Stored


class OnnxWeightFile(WeightFile):
    """The weights of an ONNX file, by address."""

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self._opened = io.open_model(self.path)
        graph = io.read_graph(self._opened)
        self._constants = graph.constants
        self._layers = find_layers(graph, self._opened.stored)

    def parameters(self) -> Sequence[tuple[str, str]]:
        """In order of execution."""
        return [(name, parameter) for name, layer in self._layers.items() for parameter in layer.stored]

    def read(self, layer: str, parameter: str) -> Array:
        """A copy in the canonical layout."""
        place = self._place(layer, parameter)
        stored = self._constants[place.name]
        return np.array(place.view(stored), CARRIERS.get(str(stored.dtype), stored.dtype), order="C")

    def dtype(self, layer: str, parameter: str) -> str:
        """The dtype in the file."""
        return str(self._constants[self._place(layer, parameter).name].dtype)

    def rewrite(self, destination: Path, weights: Weights) -> None:
        """Only the bytes of these weights differ, in the model or in the file beside it."""
        changed: dict[str, Array] = {}
        for (layer, parameter), values in weights.items():
            place = self._place(layer, parameter)
            if place.name not in changed:
                changed[place.name] = np.array(self._constants[place.name])
            view = place.view(changed[place.name])
            if np.shape(values) != view.shape:
                raise ModelError(
                    f"'{layer}.{parameter}' has shape {view.shape}, got values of shape {np.shape(values)}"
                )
            place.put(changed[place.name], np.asarray(values).astype(changed[place.name].dtype))
        io.save(self._opened, changed, Path(destination))

    def _place(self, layer: str, parameter: str) -> Stored:
        if layer not in self._layers:
            raise UnknownLayerError(f"'{self.path.name}' has no layer '{layer}'" + did_you_mean(layer, self._layers))
        stored = self._layers[layer].stored
        if parameter not in stored:
            raise UnknownLayerError(f"layer '{layer}' has no parameter '{parameter}'" + did_you_mean(parameter, stored))
        return stored[parameter]
