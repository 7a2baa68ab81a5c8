"""Where a tensor of a pass holds its inputs, found by comparing passes of different batch sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from arachne.values import Array
from arachne_torch.kinds import Use
from arachne_torch.recurrent import Recurrent
from arachne_torch.watch import Call


class MixedInputsError(Exception):
    """A tensor does not tell its inputs apart."""


@dataclass(frozen=True)
class Spread:
    """How the inputs of a batch lie in a tensor.

    Attributes:
        axis: The axis they lie on; None for a tensor that is the same whatever the inputs are.
        each: How many entries each input has on that axis (steps folded into the batch).
        apart: Whether entries of one input lie apart, all inputs' first entries first.
    """

    axis: int | None = 0
    each: int = 1
    apart: bool = False

    def by_input(self, array: Array, n: int) -> Array:
        """The values `(n, ...)`; entries that each input has several of get an axis of their own."""
        if self.axis is None:
            one = array[0] if array.ndim and len(array) == 1 else array
            return np.broadcast_to(one, (n, *one.shape))
        moved = np.moveaxis(array, self.axis, 0)
        if len(moved) != n * self.each:
            raise MixedInputsError
        if self.each == 1:
            return moved
        if self.apart:
            return moved.reshape(self.each, n, *moved.shape[1:]).swapaxes(0, 1)
        return moved.reshape(n, self.each, *moved.shape[1:])

    def as_model(self, array: Array) -> Array:
        """The inverse of `by_input`."""
        ordered = array.swapaxes(0, 1) if self.apart else array
        whole = ordered.reshape(-1, *ordered.shape[2:]) if self.each > 1 else ordered
        return np.moveaxis(whole, 0, self.axis or 0)


Spreads = Mapping[str, Spread]
"""How what enters each weight parameter holds its inputs, and under `` what leaves."""


def between(one: Tensor, other: Tensor, sizes: tuple[int, int]) -> Spread:
    """From a tensor in two passes of which one has the first inputs of the other, and their numbers.

    Raises:
        MixedInputsError: The inputs lie on no axis or on several, or not evenly.
    """
    if one.ndim != other.ndim:
        raise MixedInputsError
    grown = [axis for axis, (a, b) in enumerate(zip(one.shape, other.shape, strict=True)) if a != b]
    if not grown:
        return Spread(None)
    axis = grown[0]
    each, left = divmod(one.shape[axis], sizes[0])
    if len(grown) > 1 or left or other.shape[axis] != each * sizes[1]:
        raise MixedInputsError
    return Spread(axis, each, each > 1 and _apart(one.movedim(axis, 0), other.movedim(axis, 0), each))


def _apart(one: Tensor, other: Tensor, each: int) -> bool:
    """Which order of entries makes the inputs that both have the same in both; side by side if either does."""
    common = min(len(one), len(other)) // each
    rows = [torch.unflatten(tensor, 0, (-1, each))[:common] for tensor in (one, other)]
    columns = [torch.unflatten(tensor, 0, (each, -1))[:, :common] for tensor in (one, other)]
    return not _alike(*rows) and _alike(*columns)


def _alike(one: Tensor, other: Tensor) -> bool:
    wide = (one.double(), other.double())
    return bool(torch.allclose(*wide, rtol=1e-3, atol=1e-5, equal_nan=True))


def alone(shape: Sequence[int], size: int) -> Spread:
    """From a tensor's shape in a model of one batch size: a guess that takes the first axis that fits."""
    if shape and shape[0] % size == 0:
        return Spread(0, shape[0] // size)
    return Spread(next((axis for axis, length in enumerate(shape) if length == size), None))


def find(
    small: Sequence[Call], large: Sequence[Call], sizes: tuple[int, int]
) -> tuple[dict[str, list[Spreads]], set[str]]:
    """The spreads of every use of every layer, and the layers that mix their inputs.

    Args:
        small: The calls of one pass.
        large: The calls of another with some of the same inputs, or of the same where there is one batch size only.
        sizes: How many inputs each had.
    """
    ours, theirs = ([(use, call) for call in calls for use in call.uses] for calls in (small, large))
    found: dict[str, list[Spreads]] = {}
    mixed: set[str] = set()
    if [use.layer for use, _ in ours] != [use.layer for use, _ in theirs]:
        theirs, sizes = ours, (sizes[0], sizes[0])
    for (use, call), (other_use, other_call) in zip(ours, theirs, strict=True):
        tensors, others = _tensors(use, call), _tensors(other_use, other_call)
        try:
            spreads = {
                name: between(one, others[name], sizes) if sizes[0] != sizes[1] else alone(one.shape, sizes[0])
                for name, one in tensors.items()
            }
        except MixedInputsError:
            mixed.add(use.layer)
            spreads = {}
        found.setdefault(use.layer, []).append(spreads)
    return found, mixed


def _tensors(use: Use, call: Call) -> dict[str, Tensor]:
    if isinstance(use.kind, Recurrent):  # shows itself by input
        return {}
    leaving = call.result[0] if isinstance(call.result, tuple) else call.result
    entering = use.bound.get("input")
    if not isinstance(leaving, Tensor) or not isinstance(entering, Tensor):
        return {}
    weights = [name for name in use.owned if not name.startswith("bias")]
    same = use.kind.name == "norm"
    return {"": leaving} | dict.fromkeys(weights, leaving if same else entering)
