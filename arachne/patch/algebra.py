"""Patches put together and taken apart, tensor by tensor, without the model they are for.

Two changes of one tensor belong together in one of two ways. Either the second was made on the result of the first
(its hash before is the first's hash after): then they run in sequence. Or both were made on the same tensor: then they
stand side by side, and may not want different values for one weight. The tensor that results from both has never
existed, so its hash is unknown, and `apply` checks the hash before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from arachne.errors import PatchError
from arachne.model.values import Address
from arachne.patch.base import BaseTensor
from arachne.patch.change import TensorChange
from arachne.patch.low_rank import LowRankChange
from arachne.patch.weight_change import WeightChange
from arachne.text import pluralise

Changes = tuple[TensorChange, ...]


@dataclass(frozen=True)
class Conflict:
    """One weight that two patches want to have different values."""

    address: Address
    first: float
    second: float

    def __str__(self) -> str:
        """`fc2.weight[0, 13] (0.5 or 0.7)`."""
        return f"{self.address} ({self.first!r} or {self.second!r})"


def conflicts(first: Changes, second: Changes) -> tuple[Conflict, ...]:
    """List the weights that two patches of one model set to different values."""
    found = []
    others = {change.key: change for change in second}
    for change in first:
        other = others.get(change.key)
        if other is None or _follows(change.tensor, other.tensor):
            continue
        wanted = {entry.address: entry for entry in other.entries}
        for entry in change.entries:
            rival = wanted.get(entry.address)
            if rival is not None and rival.new_bits != entry.new_bits:
                values = (entry.storage.shortest(entry.new), rival.storage.shortest(rival.new))
                found.append(Conflict(entry.address, *values))
    return tuple(found)


def compose(first: Changes, second: Changes) -> Changes:
    """Both changes as one.

    Raises:
        PatchError: They want different values for a weight, or were made for different models.
    """
    clash = conflicts(first, second)
    if clash:
        shown = ", ".join(map(str, clash[:5])) + (", …" if len(clash) > 5 else "")
        weights = pluralise(len(clash), "weight")
        raise PatchError(
            f"the patches conflict: they give different values to {weights}: {shown}; apply the first, and repair the "
            "second mistake in the patched model"
        )
    others = {change.key: change for change in second}
    for change in first:
        if change.key in others and isinstance(change, LowRankChange) | isinstance(others[change.key], LowRankChange):
            raise PatchError(
                f"both patches change '{change.tensor.name}', and one by a low-rank edit of all its weights: apply the "
                "first, and repair the second mistake in the patched model"
            )
    merged = [_merge(change, others.pop(change.key)) if change.key in others else change for change in first]
    return tuple(change for change in [*merged, *others.values()] if change.weights)


def without(whole: Changes, part: Changes) -> Changes:
    """Take one change out of another that contains it, and return the rest.

    Raises:
        PatchError: It does not contain it, or has changed its weights again since.
    """
    taken = {change.key: change for change in part}
    missing = taken.keys() - {change.key for change in whole}
    if missing:
        raise PatchError(f"the patch to take out changes '{'.'.join(min(missing))}', which the other does not")
    left = [_take_out(change, taken[change.key]) if change.key in taken else change for change in whole]
    return tuple(change for change in left if change.weights)


def _merge(first: TensorChange, second: TensorChange) -> TensorChange:
    a, b = first.tensor, second.tensor
    if a.shape != b.shape or a.dtype != b.dtype:
        raise PatchError(f"the patches are for different models: '{a.name}' is of another shape or dtype")
    if _follows(a, b):
        before, after = a.sha256, b.patched_sha256
    elif a.sha256 is not None and a.sha256 == b.sha256:
        before, after = a.sha256, a.patched_sha256 if a.patched_sha256 == b.patched_sha256 else None
    else:
        raise PatchError(f"the patches are for different models: '{a.name}' is another tensor in each")
    if before is None and after is None:
        raise PatchError(f"the patches cannot be put together: neither has a hash of the whole '{a.name}'")
    entries = {entry.address: entry for entry in first.entries}
    for entry in second.entries:
        earlier = entries.get(entry.address)
        if earlier is not None and _follows(a, b) and earlier.new_bits != entry.old_bits:
            raise PatchError(f"the patches do not follow each other: {entry.address} is not what the first leaves")
        start = entry.old_bits if earlier is None else earlier.old_bits
        entries[entry.address] = WeightChange(entry.address, entry.dtype, start, entry.new_bits)
    marks = {mark.row: mark for mark in (*b.fingerprints, *a.fingerprints)}  # the first saw the original rows
    tensor = replace(
        a, sha256=before, patched_sha256=after, fingerprints=tuple(mark for _, mark in sorted(marks.items()))
    )
    return TensorChange(tensor, _in_order(entries.values()))


def _take_out(whole: TensorChange, part: TensorChange) -> TensorChange:
    if isinstance(whole, LowRankChange):
        if not whole.contains(part):
            raise PatchError(f"the patch to take out changes '{part.tensor.name}' in another way than the other")
        return TensorChange(whole.tensor, ())
    entries = {entry.address: entry for entry in whole.entries}
    for entry in part.entries:
        mine = entries.get(entry.address)
        if mine is None or mine.new_bits != entry.new_bits:
            raise PatchError(
                f"the patch to take out sets {entry.address} to {entry.storage.shortest(entry.new)!r}, "
                "which is not what the other leaves there; take out the later one first"
            )
        entries[entry.address] = WeightChange(entry.address, entry.dtype, mine.old_bits, entry.old_bits)
    tensor = whole.tensor
    ends_with_part = tensor.patched_sha256 is not None and tensor.patched_sha256 == part.tensor.patched_sha256
    left = replace(tensor, patched_sha256=part.tensor.sha256 if ends_with_part else None)
    remaining = _in_order(entries.values())
    if remaining and left.sha256 is None and left.patched_sha256 is None:
        raise PatchError(f"it cannot be taken out: no patch has a hash of the whole '{tensor.name}'")
    return TensorChange(left, remaining)


def _follows(first: BaseTensor, second: BaseTensor) -> bool:
    """Whether the second tensor can be the first after its change, as far as is known."""
    if first.sha256 is not None and first.sha256 == second.sha256:
        return False
    return first.patched_sha256 is None or second.sha256 is None or first.patched_sha256 == second.sha256


def _in_order(entries: Iterable[WeightChange]) -> tuple[WeightChange, ...]:
    changed: Sequence[WeightChange] = [entry for entry in entries if entry.old_bits != entry.new_bits]
    return tuple(sorted(changed, key=lambda entry: entry.address.index))
