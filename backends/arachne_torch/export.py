"""PyTorch models as ONNX files, by torch's own exporter."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from arachne.errors import BackendUnavailableError, ModelError
from arachne.files import written
from arachne.values import Array, Inputs, count, take
from arachne_torch.adapter import TorchBackend

OPSET = 18
ANY_LENGTH = 8
LARGEST_BATCH = 1 << 16


def export_onnx(backend: TorchBackend, destination: Path, *, opset: int = OPSET, inputs: Inputs | None = None) -> None:
    """Write a model with its current weights as ONNX, for any number of inputs unless it takes only one.

    Args:
        backend: The model.
        destination: Where the file goes; it appears whole or not at all.
        opset: The version of ONNX' operators.
        inputs: At least one input to follow through the model; a module, unlike a program, does not tell what it takes.

    Raises:
        ModelError: The exporter does not know an operation of the model, or nothing tells what it takes.
        BackendUnavailableError: The exporter is not installed.
    """
    fixed = backend.native if isinstance(backend.native, nn.Module) else None
    if fixed is None:
        raise ModelError("only modules and exported programs can be exported to ONNX")
    given = example_inputs(backend, 2) if inputs is None else take(inputs, np.arange(2) % count(inputs))
    batch = backend._runner.fixed
    if batch is not None:
        given = take(given, np.arange(batch) % count(given))
    example = {name: _tensor(array) for name, array in given.items()} if isinstance(given, Mapping) else _tensor(given)
    with written(destination) as temporary, _quietly(), _evaluating(fixed):
        try:
            temporary.write_bytes(_exported(fixed, example, opset, free=batch is None))
        except ImportError as error:
            raise BackendUnavailableError(
                f"exporting to ONNX needs a package that is not installed ({error.name}): "
                'pip install "arachne-repair[convert]"'
            ) from error
        except Exception as error:
            # The exporter raises whatever the first operation it does not know makes it raise.
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            reason = (lines or [type(error).__name__])[0].rstrip(".")
            raise ModelError(f"the model cannot be exported to ONNX: {reason}") from error


def example_inputs(backend: TorchBackend, n: int, *, seed: int = 0) -> Inputs:
    """Random inputs of the shapes an exported program takes, to compare it with its export.

    Whole numbers, which an embedding looks up, are below the smallest of the model's tables.

    Raises:
        ModelError: The model does not tell what it takes.
    """
    taken = {
        node.name: node.meta["val"]
        for node in getattr(getattr(backend.native, "graph", None), "nodes", [])
        if node.op == "placeholder" and isinstance(node.meta.get("val"), Tensor)
    }
    if not taken:
        raise ModelError("a torch module does not tell what inputs it takes; give some data to follow through it")
    rng = np.random.default_rng(seed)
    rows = [info.parameters["weight"].shape[0] for info in backend.layers if info.kind == "embedding"]
    arrays = {name: _drawn(value, n, rng, min(rows, default=2)) for name, value in taken.items()}
    return next(iter(arrays.values())) if len(arrays) == 1 else arrays


def _exported(module: nn.Module, example: Tensor | dict[str, Tensor], opset: int, *, free: bool) -> bytes:
    batch = torch.export.Dim("n", min=1, max=LARGEST_BATCH)
    named = isinstance(example, dict)
    shapes: Any = None
    if free:
        shapes = {name: {0: batch} for name in example} if isinstance(example, dict) else ({0: batch},)
    program = torch.onnx.export(
        module,
        () if isinstance(example, dict) else (example,),
        kwargs=example if named else None,  # type: ignore[arg-type]  # a mapping exactly when it is named
        dynamo=True,
        opset_version=opset,
        dynamic_shapes=shapes,
        verbose=False,
    )
    if program is None:
        raise ModelError("torch's exporter gave nothing")
    content: bytes = program.model_proto.SerializeToString()
    return content


def _tensor(array: Array) -> Tensor:
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    return tensor.float() if tensor.is_floating_point() or array.dtype == np.uint8 else tensor.long()


def _drawn(value: Tensor, n: int, rng: np.random.Generator, below: int) -> Array:
    sizes = [int(size) if isinstance(size, int) else ANY_LENGTH for size in value.shape[1:]]
    if value.is_floating_point():
        return rng.normal(size=(n, *sizes)).astype(np.float32)
    return rng.integers(0, below, (n, *sizes))


@contextlib.contextmanager
def _evaluating(module: nn.Module) -> Iterator[None]:
    """Out of training mode, each part with its own flag back afterwards."""
    flags = [(part, part.training) for part in module.modules()]
    try:
        for part, _ in flags:
            part.training = False
        yield
    finally:
        for part, flag in flags:
            part.training = flag


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """The exporter talks about itself; what matters about an export is seen by comparing scores."""
    kept = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(kept)
