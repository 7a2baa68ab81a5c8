"""The inputs of a graph: arrays for them, checked and in batches, and constants in their place."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np
from onnx import helper

from arachne.adapting.running import pad_rows
from arachne.errors import DataError, UsageError, did_you_mean
from arachne.model.values import Array, Inputs
from arachne_onnx.graph import Graph, TensorType, infer_types
from arachne_onnx.order import take_constant_branches


def fixed_batch(graph: Graph) -> int | None:
    """Return the batch size that the model declares, if it is fixed."""
    for kind in graph.inputs.values():
        if kind.shape and isinstance(kind.shape[0], int) and kind.shape[0] > 0:
            return kind.shape[0]
    return None


def feeds_of(
    inputs: Inputs,
    wanted: Mapping[str, TensorType],
    unused: Collection[str],
    whole: Mapping[str, tuple[Array, Array]] | None = None,
) -> dict[str, Array]:
    """Return arrays for a graph's inputs, checked and in their dtypes.

    Args:
        inputs: The data; it may hold inputs in `unused` too.
        wanted: The types of the graph's inputs.
        unused: Inputs that the scores do not depend on.
        whole: Scale and zero point of inputs that may come as whole numbers of the zero point's dtype.

    Raises:
        DataError: Inputs the model does not take.
    """
    if not isinstance(inputs, Mapping):
        if len(wanted) != 1:
            raise DataError(
                f"the model takes {len(wanted)} inputs by name ({', '.join(wanted)}), got one array; give data for "
                "all of them, or constants for those that are not data",
                argument="feeds",
            )
        inputs = {next(iter(wanted)): inputs}
    missing = [name for name in wanted if name not in inputs]
    if missing:
        raise DataError(f"the model's input '{missing[0]}' is missing" + did_you_mean(missing[0], inputs))
    unknown = [name for name in inputs if name not in wanted and name not in unused]
    if unknown:
        raise DataError(f"the model has no input '{unknown[0]}'" + did_you_mean(unknown[0], wanted))
    arrays = {name: np.asarray(inputs[name]) for name in wanted}
    arrays |= {name: _values_of(arrays[name], grid) for name, grid in (whole or {}).items() if name in arrays}
    return {name: _feed(name, arrays[name], kind) for name, kind in wanted.items()}


def _values_of(array: Array, grid: tuple[Array, Array]) -> Array:
    """Return the values that given whole numbers stand for; numbers of another dtype are values already."""
    scale, zero = grid
    if array.dtype != zero.dtype:
        return array
    found: Array = (array.astype(scale.dtype) - zero.astype(scale.dtype)) * scale
    return found


def _feed(name: str, array: Array, kind: TensorType) -> Array:
    dtype = helper.tensor_dtype_to_np_dtype(kind.element)
    if array.dtype.kind == "f" and dtype.kind in "iub" and not _whole_numbers(array):
        raise DataError(f"the model's input '{name}' takes whole numbers ({dtype}), got dtype '{array.dtype}'")
    if kind.shape is not None:
        expected = "(" + ", ".join(["n", *(str(size or "?") for size in kind.shape[1:])]) + ")"
        fits = len(kind.shape) == array.ndim and all(
            not isinstance(size, int) or size in (0, actual)
            for size, actual in zip(kind.shape[1:], array.shape[1:], strict=False)
        )
        if not fits:
            raise DataError(f"the model's input '{name}' takes arrays of shape {expected}, got {array.shape}")
    return array.astype(dtype, copy=False)


def _whole_numbers(array: Array) -> bool:
    return bool(np.all(np.isfinite(array)) and np.all(array == np.round(array)))


def with_fixed(graph: Graph, values: Mapping[str, Array], unused: Collection[str]) -> Graph:
    """Return a graph with constants for some of its inputs; those in `unused` are no inputs of it and need none.

    Raises:
        UsageError: No such input, a value of another shape, or no input left.
    """
    constants = dict(graph.constants)
    for name, value in values.items():
        if name in unused:
            continue
        if name not in graph.inputs:
            raise UsageError(f"the model has no input '{name}'" + did_you_mean(name, graph.inputs))
        kind = graph.inputs[name]
        shape = tuple(size if isinstance(size, int) and size > 0 else 1 for size in kind.shape or ())
        try:
            full = np.broadcast_to(value, shape)
        except ValueError as error:
            raise UsageError(
                f"the model's input '{name}' takes arrays of shape {shape}, got a value of shape {value.shape}"
            ) from error
        constants[name] = full.astype(helper.tensor_dtype_to_np_dtype(kind.element))
    left = {name: kind for name, kind in graph.inputs.items() if name not in values}
    if not left:
        raise UsageError("every input of the model is fixed, so there is none for the data")
    fixed = replace(graph, nodes=list(graph.nodes), constants=constants, inputs=left, types={})
    infer_types(fixed)
    take_constant_branches(fixed)
    return fixed


def fill(array: Array, size: int) -> Array:
    """Pad an array with rows of zeros to a size; the result is contiguous."""
    return np.ascontiguousarray(pad_rows(array, size))


def probe(feeds: Mapping[str, Array], n: int) -> dict[str, Array]:
    """Take the first `n` rows, with a little noise on real numbers so that no two rows are equal."""
    rng = np.random.default_rng(0)
    probes = {}
    for name, array in feeds.items():
        rows = array[np.arange(n) % len(array)] if len(array) else np.zeros((n, *array.shape[1:]), array.dtype)
        if rows.dtype.kind == "f":
            spread = float(np.nanstd(rows)) or 1.0
            rows = (rows + 0.05 * spread * rng.normal(size=rows.shape)).astype(rows.dtype)
        probes[name] = rows
    return probes


def vary(array: Array) -> Array:
    """Return other numbers of the same kind, to fill a second row of a batch."""
    return (array * np.asarray(0.5, array.dtype)) if array.dtype.kind == "f" else array
