"""The storage layout of each kind of Keras variable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from arachne_keras.parameter_slice import Layout, ParameterSlice


def plain(variable: Any) -> ParameterSlice:
    """A vector, or anything flattened to one."""
    shape = tuple(variable.shape)
    return ParameterSlice(variable, Layout.of(shape, range(len(shape)), (int(np.prod(shape)),)))


def dense(variable: Any) -> ParameterSlice:
    """`(in, out)` → `(out, in)`."""
    return ParameterSlice(variable, Layout.of(variable.shape, (1, 0)))


def kernel(variable: Any) -> ParameterSlice:
    """`(*kernel, in / groups, out)` → `(out, in / groups, *kernel)`; of a transposed convolution too.

    A transposed convolution stores `(*kernel, out, in)`, which is the convolution it is the gradient of.
    """
    rank = len(variable.shape)
    return ParameterSlice(variable, Layout.of(variable.shape, (rank - 1, rank - 2, *range(rank - 2))))


def depthwise_kernel(variable: Any) -> ParameterSlice:
    """`(*kernel, channels, multiplier)` → `(channels * multiplier, 1, *kernel)`."""
    *size, channels, multiplier = variable.shape
    axes = (len(size), len(size) + 1, *range(len(size)))
    return ParameterSlice(variable, Layout.of(variable.shape, axes, (channels * multiplier, 1, *size)))


def gates(variable: Any, order: Sequence[int]) -> ParameterSlice:
    """`(in, gates * units)` → `(gates * units, in)` with the gates in canonical order."""
    return ParameterSlice(variable, Layout.of(variable.shape, (1, 0), gates=order))


def gate_bias(variable: Any, order: Sequence[int], row: int | None = None) -> ParameterSlice:
    """`(gates * units,)`, or a row of two such biases, with the gates in canonical order."""
    shape = tuple(variable.shape) if row is None else tuple(variable.shape[1:])
    return ParameterSlice(variable, Layout.of(shape, (0,), gates=order), row)
