"""Which patches does a model file carry?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from arachne.errors import PatchError
from arachne.model.values import Array
from arachne.model.weight_file import WeightFile
from arachne.patch.change import TensorChange
from arachne.patch.matching import find_pairs
from arachne.patch.patch import Patch
from arachne.weights.storage import carrier_of

CARRIED, CHANGED_SINCE, PARTLY, ABSENT, OTHER = "carried", "changed since", "in part", "not carried", "another model"
OVERWRITTEN = "overwritten"
"""How a patch relates to a file."""


@dataclass(frozen=True)
class PatchState:
    """How a patch stands to a file.

    Attributes:
        state: `carried`: the touched tensors are bit for bit what it leaves; `changed since`: all its weights are
            there, and other weights of the same tensors differ (another patch, training); `in part`; `not carried`:
            its old values are there, all or some; `overwritten`: it is the patch's model, and its weights have values
            that are neither old nor new; `another model`.
        weights: How many of its weights have the new value.
        of: How many it changes.
    """

    state: str
    weights: int
    of: int


def patch_state(patch: Patch, file: WeightFile) -> PatchState:
    """How a patch stands to a file of any framework."""
    listed = set(file.parameters())
    tensors = [(change, *_read(file, change.key)) for change in patch.changes if change.key in listed]
    by_name = len(tensors) == len(patch.changes) and all(
        values.shape == change.tensor.shape and dtype == change.tensor.dtype for change, values, dtype in tensors
    )
    found = _compare_bits(patch, tensors) if by_name else PatchState(OTHER, 0, len(patch))
    return found if found.state != OTHER else _match_content(patch, file)


def _compare_bits(patch: Patch, tensors: Sequence[tuple[TensorChange, Array, str]]) -> PatchState:
    new = old = 0
    for change, values, _ in tensors:
        has_new, has_old = change.count(values)
        new, old = new + has_new, old + has_old
    total = len(patch)
    if new == total:
        whole = all(change.is_done_on(values, dtype) for change, values, dtype in tensors)
        return PatchState(CARRIED if whole else CHANGED_SINCE, new, total)
    if new:
        return PatchState(PARTLY, new, total)
    if old:  # not by chance: stored bits agree
        return PatchState(ABSENT, 0, total)
    mine = all(change.fits_but_for_its_weights(values, dtype) for change, values, dtype in tensors)
    return PatchState(OVERWRITTEN if mine else OTHER, 0, total)


def _match_content(patch: Patch, file: WeightFile) -> PatchState:
    """Look for the patch by content, in files with other layer names or values that an exporter scaled."""
    try:
        pairs = find_pairs(patch, file)
    except PatchError:
        return PatchState(OTHER, 0, len(patch))
    done = all(pair.done for pair in pairs)
    return PatchState(CARRIED if done else ABSENT, len(patch) if done else 0, len(patch))


def _read(file: WeightFile, key: tuple[str, str]) -> tuple[Array, str]:
    dtype = file.dtype(*key)
    return np.asarray(file.read(*key), carrier_of(dtype)), dtype
