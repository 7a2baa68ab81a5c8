"""Checks of the inputs before a model runs on them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from arachne.data.lazy.memmap import COPY_BATCH, as_type
from arachne.errors import DataError
from arachne.model.lazy import LazyArray, as_array, is_plain
from arachne.model.values import Array, Inputs, blocks, by_name, count


def as_inputs(inputs: Any) -> Inputs:
    """Convert the user's inputs to arrays; float64 becomes float32, every other dtype stays.

    Raises:
        DataError: The inputs are ragged, empty, of a dtype no model takes, or of different lengths.
    """
    if not isinstance(inputs, Mapping):
        return _as_array("the inputs", inputs)
    if not inputs:
        raise DataError("expected at least one input array, got none")
    arrays = {str(name): _as_array(f"input '{name}'", values) for name, values in inputs.items()}
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"'{name}' {length}" for name, length in lengths.items())
        raise DataError(f"expected the same number of rows in every input, got {listed}")
    _check_masks(arrays)
    return arrays


def check_finite(inputs: Inputs) -> None:
    """Refuse inputs with NaN or infinity, naming the first such row."""
    for name, array in by_name(inputs).items():
        if array.dtype.kind != "f":
            continue
        for batch in blocks(array, COPY_BATCH):
            fine = np.isfinite(array[batch]).reshape(batch.stop - batch.start, -1).all(axis=1)
            if not fine.all():
                row = batch.start + int(np.flatnonzero(~fine)[0])
                where = f" of input '{name}'" if name else ""
                raise DataError(f"row {row}{where} has NaN or infinite values, expected finite numbers")


def check_lengths(inputs: Inputs, labels: Array) -> None:
    """Refuse data without inputs, and inputs that are not one per label."""
    n = count(inputs)
    if n != len(labels):
        raise DataError(f"expected one label per input, got {n} inputs and {len(labels)} labels")
    if not n:
        raise DataError("the data has no inputs")


def _as_array(what: str, values: Any) -> Array:
    if hasattr(values, "detach"):  # a torch tensor, possibly on a device or with a gradient
        values = values.detach().cpu()
        values = values.float() if "bfloat16" in str(values.dtype) else values
    if isinstance(values, LazyArray):
        values = as_array(values)
    try:
        array: Array = values if isinstance(values, np.ndarray) or not is_plain(values) else np.asarray(values)
    except ValueError as error:
        raise DataError(f"{what} are ragged: expected every row to have the same shape") from error
    if array.ndim == 0:
        raise DataError(f"expected {what} to be an array with one row per input, got a single value")
    if array.dtype.kind == "O":
        raise DataError(f"{what} are ragged or Python objects: expected an array of numbers, every row the same shape")
    if array.dtype.kind in "US":
        raise DataError(f"{what} are text: expected numbers; give texts as token ids")
    if array.dtype.kind not in "biuf":
        raise DataError(f"{what} are {array.dtype}: expected integers or floating-point numbers")
    return as_type(array, np.float32) if array.dtype == np.float64 else array


def _check_masks(arrays: Mapping[str, Array]) -> None:
    """Refuse a mask `(n, steps)` unless some other input has as many steps."""
    for name, mask in arrays.items():
        others = {other: array.shape for other, array in arrays.items() if "mask" not in other and array.ndim > 1}
        if "mask" in name and mask.ndim == 2 and others and all(s[:2] != mask.shape for s in others.values()):
            listed = ", ".join(f"'{other}' {shape}" for other, shape in others.items())
            raise DataError(f"input '{name}' has shape {mask.shape}, expected one entry per step of {listed}")
