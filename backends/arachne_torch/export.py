"""PyTorch models as ONNX files, by torch's own exporter."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from arachne.adapting.exporting import OPSET, exporter_faults, quiet_exporter, random_inputs
from arachne.errors import ModelError
from arachne.files import atomic_write
from arachne.values import Array, Inputs, count, take
from arachne_torch.adapter import TorchBackend

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
    with quiet_exporter(), _evaluating(fixed), exporter_faults():
        content = _exported(fixed, example, opset, free=batch is None)
    atomic_write(destination, content)


def example_inputs(backend: TorchBackend, n: int, *, seed: int = 0) -> Inputs:
    """Random inputs of the shapes an exported program takes, to compare it with its export.

    Raises:
        ModelError: The model does not tell what it takes.
    """
    taken = {
        node.name: (node.meta["val"].shape[1:], "float32" if node.meta["val"].is_floating_point() else "int64")
        for node in getattr(getattr(backend.native, "graph", None), "nodes", [])
        if node.op == "placeholder" and isinstance(node.meta.get("val"), Tensor)
    }
    if not taken:
        raise ModelError("a torch module does not tell what inputs it takes; give some data to follow through it")
    return random_inputs(taken, n, backend.layers, seed=seed)


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
