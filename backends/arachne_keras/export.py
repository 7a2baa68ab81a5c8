"""Keras models as ONNX files, by Keras' own exporter: tf2onnx on tensorflow, torch's on torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from arachne.adapting.exporting import exporter_faults, quiet_exporter, random_inputs
from arachne.errors import ModelError
from arachne.io.files import atomic_draft
from arachne.model.values import Inputs, LayerInfo
from arachne_keras.autodiff import FRAMEWORK
from arachne_keras.graph import functional


def export_onnx(model: Any, inputs: Inputs, destination: Path, *, opset: int) -> None:
    """Export a model with its own output head and input names."""
    with atomic_draft(destination) as temporary, quiet_exporter():
        with FRAMEWORK.no_gradients():
            model(inputs, training=False)  # the exporter takes only models that were called
        with exporter_faults():
            model.export(str(temporary), format="onnx", verbose=False, opset_version=opset)


def example_inputs(model: Any, layers: Sequence[LayerInfo], n: int, *, seed: int) -> Inputs:
    """Draw random inputs of the shapes that a functional model declares."""
    source = functional(model)
    if source is None:
        raise ModelError(f"model '{model.name}' has a call of its own and does not tell what inputs it takes")
    taken = {tensor.name: (tensor.shape[1:], tensor.dtype) for tensor in source.inputs}
    return random_inputs(taken, n, layers, seed=seed)
