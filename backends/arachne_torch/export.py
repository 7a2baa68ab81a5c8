"""PyTorch models as ONNX files, by torch's own exporter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from arachne.adapting.exporting import exporter_faults, quiet_exporter, random_inputs
from arachne.errors import ModelError
from arachne.io.files import atomic_write
from arachne.model.values import Array, Inputs, LayerInfo, count, take
from arachne_torch.as_found import evaluating

MAX_BATCH_ROWS = 1 << 16


def export_onnx(module: nn.Module, inputs: Inputs, destination: Path, *, opset: int, batch: int | None) -> None:
    """Export a module for any batch size, unless the model takes batches of one size only."""
    given = take(inputs, np.arange(batch or 2) % count(inputs))
    example = {name: _tensor(array) for name, array in given.items()} if isinstance(given, Mapping) else _tensor(given)
    with quiet_exporter(), evaluating(module), exporter_faults():
        content = _export(module, example, opset, free=batch is None)
    atomic_write(destination, content)


def example_inputs(module: nn.Module, layers: Sequence[LayerInfo], n: int, *, seed: int) -> Inputs:
    """Draw random inputs for an exported program, which declares its inputs; a module does not."""
    taken = {
        node.name: (node.meta["val"].shape[1:], "float32" if node.meta["val"].is_floating_point() else "int64")
        for node in getattr(getattr(module, "graph", None), "nodes", [])
        if node.op == "placeholder" and isinstance(node.meta.get("val"), Tensor)
    }
    if not taken:
        raise ModelError(
            "a torch module does not tell what inputs it takes; give some data to follow through it", argument="data"
        )
    return random_inputs(taken, n, layers, seed=seed)


def _export(module: nn.Module, example: Tensor | dict[str, Tensor], opset: int, *, free: bool) -> bytes:
    batch = torch.export.Dim("n", min=1, max=MAX_BATCH_ROWS)
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
