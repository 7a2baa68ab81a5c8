"""Where a tensor of a pass holds its inputs, found by comparing passes of different batch sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from arachne.adapting.folds import Fold, MixedInputsError
from arachne.values import Array
from arachne_torch.kinds import Use
from arachne_torch.recurrent import Recurrent
from arachne_torch.watch import Call

Folds = Mapping[str, Fold]
"""How what enters each weight parameter holds its inputs, and under `` what leaves."""


def apart(fold: Fold, array: Array, n: int) -> Array:
    """As `Fold.apart`; of a tensor that is the same for all inputs and has one row, that row for each of them."""
    return fold.apart(array[0] if fold.axis is None and array.ndim and len(array) == 1 else array, n)


def find_fold(one: Tensor, other: Tensor, sizes: tuple[int, int]) -> Fold:
    """From a tensor in two passes of which one has the first inputs of the other, and their numbers.

    Raises:
        MixedInputsError: The inputs lie on no axis or on several, or not evenly.
    """
    if one.ndim != other.ndim:
        raise MixedInputsError
    grown = [axis for axis, (a, b) in enumerate(zip(one.shape, other.shape, strict=True)) if a != b]
    if not grown:
        return Fold(None)
    axis = grown[0]
    each, left = divmod(one.shape[axis], sizes[0])
    if len(grown) > 1 or left or other.shape[axis] != each * sizes[1]:
        raise MixedInputsError
    return Fold(axis, each, each > 1 and _strided(one.movedim(axis, 0), other.movedim(axis, 0), each))


def _strided(one: Tensor, other: Tensor, each: int) -> bool:
    """Which order of entries makes the inputs that both have the same in both; side by side if either does."""
    common = min(len(one), len(other)) // each
    rows = [torch.unflatten(tensor, 0, (-1, each))[:common] for tensor in (one, other)]
    columns = [torch.unflatten(tensor, 0, (each, -1))[:, :common] for tensor in (one, other)]
    return not _alike(*rows) and _alike(*columns)


def _alike(one: Tensor, other: Tensor) -> bool:
    wide = (one.double(), other.double())
    return bool(torch.allclose(*wide, rtol=1e-3, atol=1e-5, equal_nan=True))


def find_fixed_fold(shape: Sequence[int], size: int) -> Fold:
    """From a tensor's shape in a model of one batch size: a guess that takes the first axis that fits."""
    if shape and shape[0] % size == 0:
        return Fold(0, shape[0] // size)
    return Fold(next((axis for axis, length in enumerate(shape) if length == size), None))


def find_folds(
    small: Sequence[Call], large: Sequence[Call], sizes: tuple[int, int]
) -> tuple[dict[str, list[Folds]], set[str]]:
    """The folds of every use of every layer, and the layers that mix their inputs.

    Args:
        small: The calls of one pass.
        large: The calls of another with some of the same inputs, or of the same where there is one batch size only.
        sizes: How many inputs each had.
    """
    ours, theirs = ([(use, call) for call in calls for use in call.uses] for calls in (small, large))
    found: dict[str, list[Folds]] = {}
    mixed: set[str] = set()
    if [use.layer for use, _ in ours] != [use.layer for use, _ in theirs]:
        theirs, sizes = ours, (sizes[0], sizes[0])
    for (use, call), (other_use, other_call) in zip(ours, theirs, strict=True):
        tensors, others = _tensors(use, call), _tensors(other_use, other_call)
        try:
            folds = {
                name: find_fold(one, others[name], sizes)
                if sizes[0] != sizes[1]
                else find_fixed_fold(one.shape, sizes[0])
                for name, one in tensors.items()
            }
        except MixedInputsError:
            mixed.add(use.layer)
            folds = {}
        found.setdefault(use.layer, []).append(folds)
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
