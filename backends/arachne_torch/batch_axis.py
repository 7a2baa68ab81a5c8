"""Find the batch axis of every tensor of a pass by comparing passes of different batch sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from arachne.adapting.batch_axis import BatchAxis, MixedInputsError
from arachne.model.values import Array
from arachne_torch.kinds import LayerUse
from arachne_torch.recurrent import Recurrent
from arachne_torch.watch import Call

BatchAxes = Mapping[str, BatchAxis]
"""The batch axis of the input of each weight parameter, and under `` that of the output."""


def to_batch_first(batch_axis: BatchAxis, array: Array, n: int) -> Array:
    """Call `BatchAxis.to_batch_first`; repeat the row of a one-row tensor that does not depend on the inputs."""
    return batch_axis.to_batch_first(
        array[0] if batch_axis.axis is None and array.ndim and len(array) == 1 else array, n
    )


def find_batch_axis(one: Tensor, other: Tensor, sizes: tuple[int, int]) -> BatchAxis:
    """Compare a tensor in two passes of different batch sizes, one with the first inputs of the other.

    Raises:
        MixedInputsError: The inputs lie on no axis or on several, or not evenly.
    """
    if one.ndim != other.ndim:
        raise MixedInputsError
    grown = [axis for axis, (a, b) in enumerate(zip(one.shape, other.shape, strict=True)) if a != b]
    if not grown:
        return BatchAxis(None)
    axis = grown[0]
    each, left = divmod(one.shape[axis], sizes[0])
    if len(grown) > 1 or left or other.shape[axis] != each * sizes[1]:
        raise MixedInputsError
    return BatchAxis(axis, each, each > 1 and _is_strided(one.movedim(axis, 0), other.movedim(axis, 0), each))


def _is_strided(one: Tensor, other: Tensor, each: int) -> bool:
    """Whether only the strided order makes the common inputs equal in both passes."""
    common = min(len(one), len(other)) // each
    rows = [torch.unflatten(tensor, 0, (-1, each))[:common] for tensor in (one, other)]
    columns = [torch.unflatten(tensor, 0, (each, -1))[:, :common] for tensor in (one, other)]
    return not _alike(*rows) and _alike(*columns)


def _alike(one: Tensor, other: Tensor) -> bool:
    wide = (one.double(), other.double())
    return bool(torch.allclose(*wide, rtol=1e-3, atol=1e-5, equal_nan=True))


def guess_batch_axis(shape: Sequence[int], size: int) -> BatchAxis:
    """Guess the batch axis in a model of one batch size: the first axis of a matching length."""
    if shape and shape[0] % size == 0:
        return BatchAxis(0, shape[0] // size)
    return BatchAxis(next((axis for axis, length in enumerate(shape) if length == size), None))


def find_batch_axes(
    small: Sequence[Call], large: Sequence[Call], sizes: tuple[int, int]
) -> tuple[dict[str, list[BatchAxes]], set[str]]:
    """Find the batch axes of every use of every layer, and the layers that mix their inputs.

    Args:
        small: The calls of one pass.
        large: The calls of another with some of the same inputs, or of the same where there is one batch size only.
        sizes: How many inputs each had.
    """
    ours, theirs = ([(use, call) for call in calls for use in call.uses] for calls in (small, large))
    found: dict[str, list[BatchAxes]] = {}
    mixed: set[str] = set()
    if [use.layer for use, _ in ours] != [use.layer for use, _ in theirs]:
        theirs, sizes = ours, (sizes[0], sizes[0])
    for (use, call), (other_use, other_call) in zip(ours, theirs, strict=True):
        tensors, others = _tensors(use, call), _tensors(other_use, other_call)
        try:
            batch_axes = {
                name: find_batch_axis(one, others[name], sizes)
                if sizes[0] != sizes[1]
                else guess_batch_axis(one.shape, sizes[0])
                for name, one in tensors.items()
            }
        except MixedInputsError:
            mixed.add(use.layer)
            batch_axes = {}
        found.setdefault(use.layer, []).append(batch_axes)
    return found, mixed


def _tensors(use: LayerUse, call: Call) -> dict[str, Tensor]:
    if isinstance(use.kind, Recurrent):  # shows itself by input
        return {}
    leaving = call.result[0] if isinstance(call.result, tuple) else call.result
    entering = use.bound.get("input")
    if not isinstance(leaving, Tensor) or not isinstance(entering, Tensor):
        return {}
    weights = [name for name in use.owned if not name.startswith("bias")]
    same = use.kind.name == "norm"
    return {"": leaving} | dict.fromkeys(weights, leaving if same else entering)
