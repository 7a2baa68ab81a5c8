"""Keras models as ONNX files, by Keras' own exporter: tf2onnx on tensorflow, torch's on torch."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path

import keras
import numpy as np

from arachne.errors import BackendUnavailableError, ModelError
from arachne.files import written
from arachne.values import Array, Inputs
from arachne_keras.adapter import KerasBackend
from arachne_keras.autodiff import FRAMEWORK
from arachne_keras.graph import functional

OPSET = 18
ANY_LENGTH = 8


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
    with written(destination) as temporary, _quietly():
        with FRAMEWORK.no_gradients():
            model(inputs, training=False)  # the exporter insists on a model that was called
        try:
            model.export(str(temporary), format="onnx", verbose=False, opset_version=opset)
        except ImportError as error:
            raise BackendUnavailableError(
                f"exporting to ONNX needs a package that is not installed ({error.name}): "
                'pip install "arachne-repair[convert]"'
            ) from error
        except Exception as error:
            # The exporters raise whatever the first operation they do not know makes them raise.
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            reason = (lines or [type(error).__name__])[0].rstrip(".")
            raise ModelError(f"the model cannot be exported to ONNX: {reason}") from error


def example_inputs(backend: KerasBackend, n: int, *, seed: int = 0) -> Inputs:
    """Random inputs of the shapes a model takes, to compare it with its export.

    Whole numbers, which an embedding looks up, are below the smallest of the model's tables.

    Raises:
        ModelError: The model does not tell what it takes.
    """
    source = functional(backend.native)
    if source is None:
        raise ModelError(f"model '{backend.native.name}' has a call of its own and does not tell what inputs it takes")
    rng = np.random.default_rng(seed)
    rows = [info.parameters["weight"].shape[0] for info in backend.layers if info.kind == "embedding"]
    arrays = {tensor.name: _drawn(tensor, n, rng, min(rows, default=2)) for tensor in source.inputs}
    return next(iter(arrays.values())) if len(arrays) == 1 else arrays


def _drawn(tensor: keras.KerasTensor, n: int, rng: np.random.Generator, below: int) -> Array:
    shape = (n, *(ANY_LENGTH if size is None else size for size in tensor.shape[1:]))
    if keras.backend.is_float_dtype(tensor.dtype):
        return rng.normal(size=shape).astype(tensor.dtype)
    return rng.integers(0, below, shape).astype(tensor.dtype)


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """The exporters talk about themselves, and warn of names that NumPy 2 and torch have left behind.

    What matters about an export is seen by comparing scores, not by reading its warnings.
    """
    kept = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(kept)
