"""Recognise the tensors of a patch in a file: by content, or by fingerprints up to a factor per row."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from arachne.model.values import Array
from arachne.patch.base import BaseTensor, Fingerprint, fingerprint, row_of, tensor_sha256
from arachne.patch.change import TensorChange
from arachne.weights.storage import FILE_STORAGES, IntegerGrid

SAME, CONTENT, CLOSE, SCALED, QUANTISED = "same", "content", "close", "scaled", "quantised"
ORDER = (SAME, CONTENT, CLOSE, SCALED, QUANTISED)
"""How a tensor was recognised, the surest first."""

TOLERANCE = {"float64": 1e-6, "float32": 1e-6, "float16": 1e-3, "bfloat16": 8e-3}
"""How far a row may lie from its fingerprint, as a share of its norm: what rounding to the dtype can do."""

ROUNDING_DEVIATIONS = 5
"""How far a row of whole numbers may lie from its fingerprint, in standard deviations of what rounding does to it."""


@dataclass(frozen=True, eq=False)
class FileTensor:
    """A tensor of a file, which may be compared with many of a patch.

    Attributes:
        layer: The layer's name in the file.
        parameter: The parameter's name in the file.
        values: Its values in canonical layout.
        dtype: What it is stored in.
        grid: What its whole numbers stand for; None where they, or floats, are the values.
    """

    layer: str
    parameter: str
    values: Array
    dtype: str
    grid: IntegerGrid | None = None

    @cached_property
    def sha256(self) -> str:
        """The hash of its content."""
        return tensor_sha256(np.asarray(self.values, FILE_STORAGES[self.dtype].carrier))


@dataclass(frozen=True)
class Pair:
    """A tensor of a patch and the one it was found in.

    Attributes:
        change: What the patch does to it.
        layer: The layer's name in the file.
        parameter: The parameter's name in the file.
        how: `same`, `content`, `close`, `scaled` or `quantised`.
        factors: For scaled tensors, what each touched row was multiplied by.
        done: Whether the file's tensor is what the patch leaves behind.
    """

    change: TensorChange
    layer: str
    parameter: str
    how: str
    factors: Mapping[int, float]
    done: bool

    @property
    def name(self) -> str:
        """The tensor's name in the file."""
        return f"{self.layer}.{self.parameter}"


def recognise(change: TensorChange, found: FileTensor, *, exact: bool) -> Pair | None:
    """How a tensor of a file matches a change, before or after it was applied; None if it does not.

    Args:
        change: What the patch does.
        found: The tensor of the file, of the same shape as the patch's.
        exact: Whether only equal content counts.
    """
    tensor, key, values, dtype = change.tensor, (found.layer, found.parameter), found.values, found.dtype
    if found.grid is not None and tensor.dtype in TOLERANCE:
        fits = found.parameter == tensor.parameter and _rounds_to(change, found.grid.to_float(values), found.grid)
        return Pair(change, *key, QUANTISED, {}, False) if fits else None
    exact = exact or not {dtype, tensor.dtype} <= set(TOLERANCE)  # whole numbers are the same or others
    before, after = found.sha256 == tensor.sha256, found.sha256 == tensor.patched_sha256
    if None in (tensor.sha256, tensor.patched_sha256) and dtype == tensor.dtype and not (before or after):
        before, after = change.inverse().is_done_on(values, dtype), change.is_done_on(values, dtype)
    if before or after:
        how = SAME if key == change.key and dtype == tensor.dtype else CONTENT
        return Pair(change, *key, how, {}, after and not before)
    if exact or not change.entries:  # a low-rank edit is of the whole tensor, which has to be the same
        return None
    for done in (False, True):
        factors = _factors(change.inverse() if done else change, values, dtype)
        if factors is not None:
            tolerance = _tolerance(tensor, dtype)
            close = all(abs(factor - 1) <= tolerance for factor in factors.values())
            return Pair(change, *key, CLOSE if close else SCALED, {} if close else factors, done)
    return None


def _rounds_to(change: TensorChange, values: Array, grid: IntegerGrid) -> bool:
    """Whether the values of a quantised tensor are those of the patch's tensor before the change, but for rounding."""
    marks = {mark.row: mark for mark in change.tensor.fingerprints}
    if not change.entries or marks.keys() != change.rows.keys():
        return False
    steps = np.broadcast_to(grid.scale, values.shape)
    for row, mark in marks.items():
        found = fingerprint(values, row)
        own = np.asarray((steps[None] if values.ndim < 2 else steps)[row], np.float64)
        apart = ROUNDING_DEVIATIONS * math.sqrt(float((own**2).sum()) / 12)
        if found is None or np.abs(np.array(mark.projections) - np.array(found.projections)).max() > apart:
            return False
    return all(
        abs(float(values[index]) - entry.old) <= 1.01 * float(steps[index])
        for entry in change.entries
        for index in [entry.address.index]
    )


def _factors(change: TensorChange, values: Array, dtype: str) -> dict[int, float] | None:
    """The factor from each touched row of the patch's tensor to this one's; None if there is none."""
    marks = {mark.row: mark for mark in change.tensor.fingerprints}
    if marks.keys() != change.rows.keys():
        return None
    tolerance = _tolerance(change.tensor, dtype)
    factors = {}
    for row in sorted(marks):
        found = fingerprint(values, row)
        factor = None if found is None else _factor(marks[row], found, tolerance)
        if factor is None:
            return None
        factors[row] = factor
    size = math.prod(values.shape[1:]) if values.ndim > 1 else values.size
    for entry in change.entries:
        row = row_of(entry.address.index)
        expected = factors[row] * entry.old
        scale = max(abs(expected), abs(factors[row]) * marks[row].norm / math.sqrt(size))
        if abs(float(values[entry.address.index]) - expected) > 4 * tolerance * scale:
            return None
    # A vector has no rows to scale, and rows of one weight fit any factor.
    if (values.ndim < 2 or size < 2) and any(abs(factor - 1) > tolerance for factor in factors.values()):
        return None
    return factors


def _factor(mark: Fingerprint, found: Fingerprint, tolerance: float) -> float | None:
    if mark.norm == 0 or found.norm == 0:
        return 1.0 if mark.norm == found.norm else None
    size = found.norm / mark.norm
    for factor in (size, -size):
        scaled = factor * np.array(mark.projections)
        if np.all(np.abs(scaled - np.array(found.projections)) <= tolerance * found.norm):
            return factor
    return None


def _tolerance(tensor: BaseTensor, dtype: str) -> float:
    return max(TOLERANCE[tensor.dtype], TOLERANCE[dtype])
