"""`TfliteBackend`: TFLite files, judged by LiteRT and repaired through their translation to ONNX.

Training mode
    A TFLite graph has none: converters fold batch norm into the layers before it.

Layout
    Filters are stored as `(out, height, width, in)`, those of depthwise convolutions as `(1, height, width, out)`. The
    canonical layout is ONNX', after the transposes of the translation; writing reverses them. int8, uint8 and int32
    tensors with scales are weights on a grid; float16 weights are stored as such.

Copies
    The user's file is only read. Candidates run in the translation; scores of `forward`, which decide, come from LiteRT
    on a copy of the file's bytes with the present weights in their place. Saving writes those bytes and changes nothing
    else.

Devices
    LiteRT runs on one thread of the processor, as many inputs at a time as the file says, which is mostly one.

Outputs
    Scores are the inputs of a final softmax or sigmoid: LiteRT is asked for that tensor too, by one more entry in the
    list of outputs. Where a softmax in whole numbers gives several classes the same probability, the first one has the
    largest score, as for anybody who reads the file's output.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path

import ai_edge_litert

from arachne.errors import ModelError, UsageError
from arachne.model.backend import WeightFile
from arachne.model.values import Activation, Array, Description, Inputs
from arachne_onnx import io as onnx_io
from arachne_onnx.adapter import OnnxBackend
from arachne_onnx.graph import Graph
from arachne_onnx.output_head import OutputHead
from arachne_onnx.sessions import Device
from arachne_tflite import io
from arachne_tflite.running import Runner
from arachne_tflite.weights import TfliteWeightFile


class TfliteBackend(OnnxBackend):
    """A TFLite classifier."""

    NAME = "tflite"
    SUFFIXES = (".tflite",)
    OBJECT_MODULES = ()

    _open_model = staticmethod(io.open_model)

    def __init__(self, model: io.LoadedModel, output: str | None = None) -> None:
        self._file = model
        super().__init__(model.onnx, output)
        self.native = None

    def _graph_of(self, model: onnx_io.LoadedModel) -> Graph:
        """Read the translation, checked against the file."""
        return io.read_graph(self._file)

    def _runner_of(self, graph: Graph, head: OutputHead, device: Device, unused: Collection[str]) -> Runner:
        """Make a runner with LiteRT's scores."""
        return Runner(self._file, graph, head, device, unused)

    @classmethod
    def weight_file(cls, path: Path) -> WeightFile:
        """Open the weights of a `.tflite` file."""
        return TfliteWeightFile(path)

    @classmethod
    def quantise(cls, path: Path, kind: str) -> Callable[[Inputs], Array]:
        """Refuse: converters quantise while they make a file, with inputs to look at."""
        raise ModelError(
            f"'{path.name}' is a TFLite file; quantise the model it was made from, and apply the patch to that"
        )

    def save(self, path: Path) -> None:
        """A copy of the file in which only the bytes of changed weights differ."""
        io.save(self._file, {name: self._runner.values[name] for name in sorted(self._runner.touched)}, Path(path))

    def fix_shapes(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Refuse: a TFLite file has sizes of its own."""
        raise UsageError("a TFLite file is converted for inputs of one shape; convert the model for another one")

    def describe(self) -> Description:
        """Describe the model; the notes list shared tensors and layers that are out of reach."""
        return replace(super().describe(), format=self._file.format)

    def _forward_through(self, inputs: Inputs, layer: str) -> tuple[Array, tuple[Activation, ...]]:
        """LiteRT's scores, and activations of the translation."""
        return self._runner.scores(inputs), self._activations(inputs, layer)

    def _framework(self) -> str:
        return f"LiteRT {ai_edge_litert.__version__}"

    def _device(self) -> str:
        return "cpu"
