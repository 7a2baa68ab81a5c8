"""Keras models as ONNX files, by Keras' own exporter: tf2onnx on tensorflow, torch's on torch."""

from __future__ import annotations

from pathlib import Path

from arachne.adapting.exporting import OPSET, exporter_faults, quiet_exporter, random_inputs
from arachne.errors import ModelError
from arachne.files import written
from arachne.values import Inputs
from arachne_keras.adapter import KerasBackend
from arachne_keras.autodiff import FRAMEWORK
from arachne_keras.graph import functional


def export_onnx(backend: KerasBackend, destination: Path, *, opset: int = OPSET, inputs: Inputs | None = None) -> None:
    """Write a model with its current weights as ONNX.

    The graph ends as the model does, in a softmax where it has one. Its inputs have the model's names.

    Args:
        backend: The model.
        destination: Where the file goes; it appears whole or not at all.
        opset: The version of ONNX' operators.
        inputs: Inputs to follow through the model, where it does not tell what it takes.

    Raises:
        ModelError: The exporter does not know an operation of the model.
        BackendUnavailableError: The exporter is not installed.
    """
    model = backend.native
    inputs = example_inputs(backend, 1) if inputs is None else inputs
    with written(destination) as temporary, quiet_exporter():
        with FRAMEWORK.no_gradients():
            model(inputs, training=False)  # the exporter insists on a model that was called
        with exporter_faults():
            model.export(str(temporary), format="onnx", verbose=False, opset_version=opset)


def example_inputs(backend: KerasBackend, n: int, *, seed: int = 0) -> Inputs:
    """Random inputs of the shapes a model takes, to compare it with its export.

    Raises:
        ModelError: The model does not tell what it takes.
    """
    source = functional(backend.native)
    if source is None:
        raise ModelError(f"model '{backend.native.name}' has a call of its own and does not tell what inputs it takes")
    taken = {tensor.name: (tensor.shape[1:], tensor.dtype) for tensor in source.inputs}
    return random_inputs(taken, n, backend.layers, seed=seed)
