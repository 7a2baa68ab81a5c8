"""The weights in a TFLite file: read and written by address, without a session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from arachne.model.values import Array
from arachne.model.weight_file import WeightFile
from arachne_onnx.layers import find_layers
from arachne_onnx.weights import OnnxWeightFile
from arachne_tflite import io


class TfliteWeightFile(OnnxWeightFile):
    """The weights of a TFLite file, by address: those of its translation, whose locations are in the file."""

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self._file = io.open_model(self.path)
        graph = io.read_graph(self._file)
        self._constants = graph.constants
        self._layers = find_layers(graph, self._file.onnx.weight_tensors)

    def beside(self) -> Sequence[Path]:
        """Return no files: those with weights elsewhere are refused."""
        return ()

    def name_patch(self, copy: Path, digest: str) -> None:
        """Refuse: a name would move the tables of the file."""
        WeightFile.name_patch(self, copy, digest)

    def forget_patch(self, copy: Path, digest: str) -> None:
        """Do nothing, since nothing is noted."""

    def _save(self, changed: Mapping[str, Array], destination: Path) -> None:
        io.save(self._file, changed, destination)
