"""The weights in an ONNX file: read and written by address, without a session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from arachne.errors import ModelError, UsageError
from arachne.model.values import Array, Weights
from arachne.model.weight_file import WeightFile
from arachne.weights.storage import IntegerGrid, carrier_of
from arachne_onnx import io
from arachne_onnx.graph import Graph
from arachne_onnx.layers import find_layers
from arachne_onnx.surgery import metadata_entry

PATCH_KEY = "arachne.patch"
"""Under which a model's metadata names the patch it carries."""


class OnnxWeightFile(WeightFile):
    """The weights of an ONNX file, by address."""

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self._opened = io.open_model(self.path)
        graph = _with_loops_written_out(self._opened, io.read_graph(self._opened))
        self._constants = graph.constants
        self._layers = find_layers(graph, self._opened.weight_tensors)

    def beside(self) -> Sequence[Path]:
        """Return the files of its external data."""
        return tuple(self._opened.beside.values())

    def parameters(self) -> Sequence[tuple[str, str]]:
        """Return all parameters in order of execution."""
        return [(name, parameter) for name, layer in self._layers.items() for parameter in layer.stored]

    def grid(self, layer: str, parameter: str) -> IntegerGrid | None:
        """Return the grid of a quantised parameter."""
        slice_ = self._layers[layer].stored[parameter]
        return slice_.canonical_grid(self._constants[slice_.name].shape)

    def rename_beside(self, copy: Path, names: Mapping[str, str]) -> None:
        """Rename the files, and write the model anew with their names; its tensors stay where they are in the files."""
        io.rename_external(copy, names)

    def name_patch(self, copy: Path, digest: str) -> None:
        """Append an entry to the model's metadata at the end of the file; all bytes before it stay unchanged."""
        with copy.open("ab") as stream:
            stream.write(metadata_entry(PATCH_KEY, digest))

    def forget_patch(self, copy: Path, digest: str) -> None:
        """Remove the entry from the end of the file."""
        entry = metadata_entry(PATCH_KEY, digest)
        with copy.open("rb+") as stream:
            start = stream.seek(0, 2) - len(entry)
            if start >= 0 and stream.seek(start) == start and stream.read() == entry:
                stream.truncate(start)

    def _read(self, layer: str, parameter: str) -> Array:
        """A copy in the canonical layout."""
        slice_ = self._layers[layer].stored[parameter]
        stored = self._constants[slice_.name]
        return np.array(slice_.view(stored), carrier_of(str(stored.dtype)), order="C")

    def _dtype(self, layer: str, parameter: str) -> str:
        """The dtype in the file."""
        return str(self._constants[self._layers[layer].stored[parameter].name].dtype)

    def _rewrite(self, destination: Path, weights: Weights) -> None:
        """Write a copy in which only the bytes of these weights differ, in the model or in the file beside it."""
        changed: dict[str, Array] = {}
        for (layer, parameter), values in weights.items():
            slice_ = self._layers[layer].stored[parameter]
            if slice_.name not in changed:
                changed[slice_.name] = np.array(self._constants[slice_.name])
            slice_.put(changed[slice_.name], np.asarray(values).astype(changed[slice_.name].dtype))
        self._save(changed, Path(destination))

    def _save(self, changed: Mapping[str, Array], destination: Path) -> None:
        io.save(self._opened, changed, destination)


def _with_loops_written_out(opened: io.LoadedModel, graph: Graph) -> Graph:
    """Read a graph with loops of any length once more, for inputs of length one: weights lie where they did."""
    if not any(node.op_type in ("Loop", "Scan") for node in graph.nodes):
        return graph
    shapes = {
        name: tuple(size if isinstance(size, int) else 1 for size in kind.shape)
        for name, kind in graph.inputs.items()
        if kind.shape
    }
    try:
        return io.read_graph(replace(opened, model=io.with_shapes(opened.model, shapes)))
    except (ModelError, UsageError):
        return graph
