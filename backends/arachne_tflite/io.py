"""Open and save TFLite files; nothing in them is run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arachne.errors import ModelError, UsageError
from arachne.io.files import atomic_write, same_file
from arachne.model.values import Array
from arachne_onnx import io as onnx_io
from arachne_onnx.graph import Graph
from arachne_onnx.surgery import write_tensor
from arachne_tflite.file import TfliteFile
from arachne_tflite.translate import Translation, translate

MAX_FILE_BYTES = 1 << 31
"""The largest file: a flatbuffer's offsets reach no further."""


@dataclass(frozen=True)
class LoadedModel:
    """A file that was read, with its translation.

    Attributes:
        path: The file.
        file: Its tables and bytes.
        translation: Which ONNX tensor is which tensor of the file.
        onnx: The translation as the ONNX adapter opens models; its places are those in the TFLite file.
    """

    path: Path | None
    file: TfliteFile
    translation: Translation
    onnx: onnx_io.LoadedModel

    @property
    def format(self) -> str:
        """The kind of file it came in."""
        return "tflite model" if self.path is None else "tflite file"

    def content_with(self, changed: Mapping[str, Array]) -> bytes:
        """Return the file's bytes with other numbers in some stored tensors."""
        content = bytearray(self.file.content)
        for name, values in changed.items():
            write_tensor(content, self.onnx.locations[name], values, name)
        return bytes(content)


def open_model(
    source: Any, *, weights: Path | None = None, device: str | None = None, trust_code: bool = False
) -> LoadedModel:
    """Open a `.tflite` file or its bytes, and check all of it; there is no code in it to trust.

    Raises:
        UsageError: Weights are given apart, or a device that LiteRT does not run on here.
        ModelError: No TFLite model, or one that nothing here can run.
    """
    if weights is not None:
        raise UsageError(f"a TFLite model holds its own weights, so '{weights.name}' has no use")
    if device not in (None, "cpu"):
        raise UsageError(f"LiteRT runs on the processor here ('cpu'), got the device '{device}'")
    if isinstance(source, (bytes, bytearray)):
        return _open(bytes(source), "the model", None)
    if not isinstance(source, (str, Path)):
        raise ModelError(f"expected a TFLite file or its bytes, got '{type(source).__name__}'")
    path = Path(source)
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ModelError(f"'{path.name}' is larger than 2 GB, which no TFLite file is")
        content = path.read_bytes()
    except OSError as error:
        raise ModelError(f"cannot read '{path.name}': {error.strerror}") from error
    return _open(content, path.name, path)


def _open(content: bytes, name: str, path: Path | None) -> LoadedModel:
    file = TfliteFile.read(content, name)
    translation = translate(file)
    opened = onnx_io.LoadedModel(translation.model, path, content, translation.locations)
    return LoadedModel(path, file, translation, opened)


def read_graph(opened: LoadedModel) -> Graph:
    """Return the translated graph, after checking that it makes tensors of the sizes that the file says.

    LiteRT takes the file's word for sizes in places, so a file that lies is refused before it runs.

    Raises:
        ModelError: A weight is not a number, or a size is another one.
    """
    graph = onnx_io.read_graph(opened.onnx)
    for name, expected in opened.translation.shapes.items():
        kind = graph.type_of(name)
        if kind is None or kind.shape is None or not all(isinstance(size, int) for size in kind.shape):
            raise ModelError(f"the model's tensor '{name}' has a size that does not follow from its operators")
        if tuple(kind.shape) != expected and (math.prod(expected) != 1 or kind.shape):
            raise ModelError(
                f"the model says that its tensor '{name}' has shape {expected}, and its operators make {kind.shape}"
            )
    return graph


def save(opened: LoadedModel, changed: Mapping[str, Array], path: Path) -> None:
    """Write a copy of the file in which only the bytes of changed weights differ.

    Raises:
        ModelError: The path is the model's own file, or has another suffix.
    """
    if path.suffix.lower() != ".tflite":
        raise ModelError(f"a TFLite model is saved as '.tflite', not as '{path.name}'")
    if opened.path is not None and same_file(opened.path, path):
        raise ModelError(f"'{path}' is the model's own file, choose another name")
    atomic_write(path, opened.content_with(changed), source=opened.path)
