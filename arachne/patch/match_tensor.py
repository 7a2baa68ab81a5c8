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
"""How far a row may lie from its fingerprint, as a share of its norm: the largest effect of rounding to the dtype."""

ROUNDING_DEVIATIONS = 5
"""How far a row of whole numbers may lie from its fingerprint, in standard deviations of what rounding does to it."""

SCALED_ROW = 16
"""The fewest weights of a row of whole numbers for which a factor can be told from what rounding does."""


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
        factors = _quantised_factors(change, found) if found.parameter == tensor.parameter else None
        return None if factors is None else Pair(change, *key, QUANTISED, factors, False)
    exact = exact or not {dtype, tensor.dtype} <= set(TOLERANCE)  # whole numbers are the same or others
    before, after = found.sha256 == tensor.sha256, found.sha256 == tensor.patched_sha256
    if None in (tensor.sha256, tensor.patched_sha256) and dtype == tensor.dtype and not (before or after):
        before, after = change.inverse().is_done_on(values, dtype), change.is_done_on(values, dtype)
    if before or after:
        how = SAME if key == change.key and dtype == tensor.dtype else CONTENT
        return Pair(change, *key, how, {}, after and not before)
    if exact:
        return None
    for done in (False, True):
        factors = _factors(change.inverse() if done else change, values, dtype)
        if factors is not None:
            tolerance = _tolerance(tensor, dtype)
            close = all(abs(factor - 1) <= tolerance for factor in factors.values())
            return Pair(change, *key, CLOSE if close else SCALED, {} if close else factors, done)
    return None


def _quantised_factors(change: TensorChange, found: FileTensor) -> dict[int, float] | None:
    """Return the factor by which each touched row was multiplied before it was rounded; factors of 1 are left out.

    None if the values of the file's tensor are not those of the patch's before the change.
    """
    marks = {mark.row: mark for mark in change.tensor.fingerprints}
    if found.grid is None or not marks or marks.keys() != change.touched_rows:
        return None
    values = np.asarray(found.grid.to_float(found.values), np.float64)
    steps = np.broadcast_to(found.grid.scale, values.shape)
    factors = {}
    for row, mark in marks.items():
        own = np.asarray((steps[None] if values.ndim < 2 else steps)[row], np.float64)
        factor = _rounded_factor(mark, fingerprint(values, row), own)
        if factor is None:
            return None
        factors[row] = factor
    for entry in change.entries:
        index, factor = entry.address.index, factors[row_of(entry.address.index)]
        if abs(float(values[index]) - factor * entry.old) > 1.01 * float(steps[index]):
            return None
    return {} if all(factor == 1 for factor in factors.values()) else factors


def _rounded_factor(mark: Fingerprint, found: Fingerprint | None, steps: Array) -> float | None:
    """The factor from a row to one of whole numbers: 1 where rounding explains the difference, or that of the norms."""
    if found is None:
        return None
    spread = float((steps**2).sum()) / 12
    can_tell = steps.size >= SCALED_ROW and mark.norm > 0 and found.norm**2 > 2 * spread
    scaled = math.sqrt(found.norm**2 - spread) / mark.norm if can_tell else 1.0
    for factor in (1.0, scaled, -scaled):
        apart = np.abs(factor * np.array(mark.projections) - np.array(found.projections))
        if apart.max() <= ROUNDING_DEVIATIONS * math.sqrt(spread):
            return factor
    return None


def _factors(change: TensorChange, values: Array, dtype: str) -> dict[int, float] | None:
    """The factor from each touched row of the patch's tensor to this one's; None if there is none."""
    marks = {mark.row: mark for mark in change.tensor.fingerprints}
    if not marks or marks.keys() != change.touched_rows:
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
