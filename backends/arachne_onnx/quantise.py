"""Scores of quantised copies of a model, by onnxruntime's own quantisation: does a repair survive it?

Such a copy is only ever run; a quantised file of one's own is repaired like any other.
"""

from __future__ import annotations

import logging
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import onnx
import onnxruntime
from onnx import ModelProto
from onnxruntime.quantization import QuantType, quantize_dynamic
from onnxruntime.quantization.shape_inference import quant_pre_process
from onnxruntime.transformers.float16 import convert_float_to_float16
from onnxruntime.transformers.onnx_model import OnnxModel

from arachne.errors import ModelError, UsageError
from arachne.io.reading import error_text
from arachne.model.values import Array, Inputs
from arachne_onnx import io
from arachne_onnx.output_head import find_output_head
from arachne_onnx.running import Runner
from arachne_onnx.sessions import Device

QUANTISATIONS = ("int8", "fp16")

SILENT, WARNINGS = 4, 2
"""Severities from which on onnxruntime tells something; the second is its own default."""


def quantise_copy(path: Path, kind: str) -> Callable[[Inputs], Array]:
    """Quantise a copy of a model and return a function that computes its class scores.

    Raises:
        UsageError: No such kind.
        ModelError: onnxruntime cannot quantise the model.
    """
    if kind not in QUANTISATIONS:
        raise UsageError(f"no quantisation named '{kind}'; available: {', '.join(QUANTISATIONS)}")
    model = io.open_model(path).model  # checked, and whole: external data confuses onnxruntime's tools
    with tempfile.TemporaryDirectory(prefix="arachne-") as folder:
        whole, copy = Path(folder) / "whole.onnx", Path(folder) / "quantised.onnx"
        try:
            onnx.save(_without_shapes(model), whole)
            with silence_tools():
                (_to_int8 if kind == "int8" else _to_half)(whole, copy)
        except Exception as error:
            raise ModelError(f"onnxruntime cannot quantise '{path.name}' to {kind}: {error_text(error)}") from error
        opened = io.open_model(copy)
        graph = io.read_graph(opened)
        return Runner(graph, find_output_head(opened.model, graph, None), Device(None)).scores


@contextmanager
def silence_tools() -> Iterator[None]:
    """Silence onnxruntime's tools: they log advice and tracebacks, and their sessions write names of the model."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    onnxruntime.set_default_logger_severity(SILENT)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        onnxruntime.set_default_logger_severity(WARNINGS)
        logging.disable(disabled)


def _without_shapes(model: ModelProto) -> ModelProto:
    """Copy a model without its inner shapes: exporters leave wrong ones, at which onnxruntime's tools fail."""
    copy = ModelProto()
    copy.CopyFrom(model)
    del copy.graph.value_info[:]
    return copy


def _to_int8(source: Path, destination: Path) -> None:
    prepared = destination.with_name("prepared.onnx")
    quant_pre_process(source, prepared, skip_symbolic_shape=True)
    quantize_dynamic(prepared, destination, weight_type=QuantType.QInt8)


def _to_half(source: Path, destination: Path) -> None:
    wrapped = OnnxModel(convert_float_to_float16(onnx.load(source), keep_io_types=True))
    wrapped.topological_sort()  # the converter puts the casts of the inputs last
    onnx.save(wrapped.model, destination)
