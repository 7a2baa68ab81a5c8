"""The change of one tensor by a patch, and its checks, for models in memory and for files."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from arachne.errors import PatchError
from arachne.model.values import Address, Array
from arachne.patch.base import (
    BaseTensor,
    Fingerprint,
    PatchBase,
    fingerprints,
    row_of,
    shift_fingerprint,
    tensor_sha256,
)
from arachne.patch.weight_change import WeightChange
from arachne.text import Brief
from arachne.weights.storage import FILE_STORAGES, IntegerGrid


@dataclass(frozen=True)
class TensorChange(Brief):
    """Everything a patch does to one tensor."""

    tensor: BaseTensor
    entries: tuple[WeightChange, ...]

    @classmethod
    def of(cls, values: Array, entries: Sequence[WeightChange], *, uses: int = 1) -> TensorChange:
        """The change that these entries, all of one tensor and in any order, make to its present values."""
        first = entries[0]
        ordered = tuple(sorted(entries, key=lambda entry: entry.address.index))
        before = np.asarray(values, FILE_STORAGES[first.dtype].carrier)
        after = _put(before, ordered, "new_bits")
        tensor = BaseTensor(
            first.address.layer,
            first.address.parameter,
            tuple(values.shape),
            first.dtype,
            tensor_sha256(before),
            tensor_sha256(after),
            uses,
            fingerprints(before, (row_of(entry.address.index) for entry in ordered)),
        )
        return cls(tensor, ordered)

    @property
    def key(self) -> tuple[str, str]:
        """Layer and parameter."""
        return self.tensor.layer, self.tensor.parameter

    @property
    def weights(self) -> int:
        """How many weights it changes."""
        return len(self.entries)

    @property
    def description(self) -> str:
        """Words for a line about the tensor, beside the number of weights; empty if every weight is listed."""
        return ""

    @cached_property
    def index(self) -> tuple[Array, ...]:
        """Where the entries lie in the tensor: one array of numbers for each of its axes."""
        return by_axis([entry.address.index for entry in self.entries])

    @cached_property
    def rows(self) -> Mapping[int, Sequence[WeightChange]]:
        """The entries of each touched row."""
        rows: dict[int, list[WeightChange]] = {}
        for entry in self.entries:
            rows.setdefault(row_of(entry.address.index), []).append(entry)
        return rows

    @property
    def touched_rows(self) -> Set[int]:
        """The rows it changes, by which a rounded or scaled copy of the tensor is recognised."""
        return self.rows.keys()

    def inverse(self) -> TensorChange:
        """The change that takes this one back."""
        return self._inverse

    @cached_property
    def _inverse(self) -> TensorChange:
        tensor = self.tensor
        swapped = replace(
            tensor,
            sha256=tensor.patched_sha256,
            patched_sha256=tensor.sha256,
            fingerprints=tuple(filter(None, map(self._shift_fingerprint, tensor.fingerprints))),
        )
        return TensorChange(swapped, tuple(entry.inverse() for entry in self.entries))

    def on(self, values: Array, dtype: str, where: str) -> Array:
        """The tensor after the change, as a fresh array.

        Args:
            values: The tensor as it is now, in canonical layout.
            dtype: What it is stored in.
            where: The model's name, for the sentence when it does not fit.

        Raises:
            PatchError: The tensor is not the one the patch was made for.
        """
        tensor = self.tensor
        if values.shape != tensor.shape or dtype != tensor.dtype:
            raise PatchError(
                f"the patch is for a '{tensor.name}' of shape {tensor.shape} in {tensor.dtype}, "
                f"but '{where}' has one of shape {values.shape} in {dtype}"
            )
        current = np.asarray(values, FILE_STORAGES[dtype].carrier)
        self._check_old_values(current, where)
        if tensor.sha256 is not None and tensor_sha256(current) != tensor.sha256:
            raise PatchError(
                f"'{tensor.name}' in '{where}' is not the tensor this patch was made for: "
                "the listed weights agree, others differ"
            )
        return self._put_and_check(current)

    def is_done_on(self, values: Array, dtype: str) -> bool:
        """Whether a tensor is what this change leaves behind."""
        tensor = self.tensor
        if values.shape != tensor.shape or dtype != tensor.dtype:
            return False
        return self._is_put_on(np.asarray(values, FILE_STORAGES[dtype].carrier))

    def count(self, values: Array) -> tuple[int, int]:
        """Count the weights of a tensor that have their new value, and those that have their old one."""
        bits = self.tensor.storage.bits_of(values[self.index])
        new = sum(own == entry.new_bits for own, entry in zip(bits, self.entries, strict=True))
        return new, sum(own == entry.old_bits for own, entry in zip(bits, self.entries, strict=True))

    def move_to(self, layer: str, parameter: str) -> TensorChange:
        """Make the same change of a tensor with the same content and another name."""
        tensor = replace(self.tensor, layer=layer, parameter=parameter)
        entries = (replace(one, address=Address(layer, parameter, one.address.index)) for one in self.entries)
        return TensorChange(tensor, tuple(entries))

    def derive(
        self, values: Array, dtype: str, factors: Mapping[int, float], grid: IntegerGrid | None = None
    ) -> TensorChange | None:
        """Make the change with the bits of another tensor; None when rounding to its dtype leaves nothing of it.

        Args:
            values: The other tensor, of the same name.
            dtype: What it is stored in.
            factors: What each row was multiplied by; 1 where it is not listed.
            grid: What its whole numbers stand for, if it is a quantised one; new values are rounded to it.

        Raises:
            PatchError: A new value lies outside the grid.
        """
        entries = []
        for entry in self.entries:
            index = entry.address.index
            new = factors.get(row_of(index), 1.0) * entry.new
            if grid is not None:
                new = _round_to(grid, values.shape, entry.address, new)
            own = WeightChange.of(entry.address, dtype, float(values[index]), new)
            if own.old_bits != own.new_bits:
                entries.append(own)
        return TensorChange.of(values, entries, uses=self.tensor.uses) if entries else None

    def fits_but_for_its_weights(self, values: Array, dtype: str) -> bool:
        """Whether a tensor is the one the change was made for, ignoring the changed weights."""
        tensor = self.tensor
        if values.shape != tensor.shape or dtype != tensor.dtype:
            return False
        current = np.asarray(values, FILE_STORAGES[dtype].carrier)
        before, after = (_put(current, self.entries, part) for part in ("old_bits", "new_bits"))
        return tensor_sha256(before) == tensor.sha256 or tensor_sha256(after) == tensor.patched_sha256

    def _shift_fingerprint(self, mark: Fingerprint) -> Fingerprint | None:
        """The fingerprint of a row after the change."""
        shape = self.tensor.shape[1:] if len(self.tensor.shape) > 1 else self.tensor.shape
        values = {}
        for entry in self.rows.get(mark.row, ()):
            index = entry.address.index
            within = index[1:] if len(index) > 1 else index
            values[int(np.ravel_multi_index(within, shape))] = (entry.old, entry.new)
        return shift_fingerprint(mark, math.prod(shape), values)

    def _check_old_values(self, current: Array, where: str) -> None:
        if self.tensor.storage.bits_of(current[self.index]) == [entry.old_bits for entry in self.entries]:
            return
        for entry in self.entries:
            now = entry.storage.bits(current[entry.address.index])
            if now != entry.old_bits:
                raise PatchError(
                    f"the patch expects {entry.address} to be {entry.old:.9g} (bits {entry.old_bits}), "
                    f"but '{where}' has {float(current[entry.address.index]):.9g} (bits {now})"
                )

    def _is_put_on(self, current: Array) -> bool:
        tensor = self.tensor
        if tensor.storage.bits_of(current[self.index]) != [entry.new_bits for entry in self.entries]:
            return False
        if tensor.patched_sha256 is not None:
            return tensor_sha256(current) == tensor.patched_sha256
        return tensor_sha256(_put(current, self.entries, "old_bits")) == tensor.sha256

    def _put_new(self, current: Array) -> Array:
        return _put(current, self.entries, "new_bits")

    def _put_and_check(self, current: Array) -> Array:
        changed = self._put_new(current)
        expected = self.tensor.patched_sha256
        if expected is not None and tensor_sha256(changed) != expected:
            raise PatchError(
                f"the patch does not give the '{self.tensor.name}' it promises: "
                "entries were edited, added or removed by hand"
            )
        return changed


def _put(values: Array, entries: Sequence[WeightChange], part: str) -> Array:
    """A copy with the old or the new values of some entries in it."""
    changed = values.copy()
    bits = [getattr(entry, part) for entry in entries]
    new = entries[0].storage.values_of(bits)
    changed[by_axis([entry.address.index for entry in entries])] = new if values.ndim else new[0]
    return changed


def by_axis(index: Sequence[tuple[int, ...]]) -> tuple[Array, ...]:
    """Indices into an array, each a tuple, as one array of numbers per axis."""
    return tuple(np.array(index, np.int64).T)


def index_arrays(index: Sequence[tuple[int, ...]], shape: tuple[int, ...]) -> tuple[Array, ...] | None:
    """Turn indices into arrays as `by_axis` does; None if one is out of bounds or does not fit the shape."""
    if not shape or math.prod(shape) >= 1 << 62 or {len(one) for one in index} != {len(shape)}:
        return None
    try:
        found = by_axis(index)
    except OverflowError:
        return None
    fits = all(int(axis.min()) >= 0 and int(axis.max()) < size for axis, size in zip(found, shape, strict=True))
    return found if fits else None


def changes(base: PatchBase, entries: Sequence[WeightChange]) -> tuple[TensorChange, ...]:
    """A patch, tensor by tensor.

    Raises:
        PatchError: An address twice, an index outside its tensor, or a tensor that the base does not list.
    """
    by_key: dict[tuple[str, str], list[WeightChange]] = {
        (tensor.layer, tensor.parameter): [] for tensor in base.tensors
    }
    if len(by_key) != len(base.tensors):
        raise PatchError("the patch lists a tensor of its base twice")
    for entry in entries:
        by_key.setdefault((entry.address.layer, entry.address.parameter), []).append(entry)
    if [(tensor.layer, tensor.parameter) for tensor in base.tensors] != list(by_key) or not all(
        _fit(tensor, by_key[tensor.layer, tensor.parameter]) for tensor in base.tensors
    ):
        _check_one_by_one(base, entries)
    return tuple(TensorChange(tensor, tuple(by_key[tensor.layer, tensor.parameter])) for tensor in base.tensors)


def _fit(tensor: BaseTensor, entries: Sequence[WeightChange]) -> bool:
    """Whether many entries at once are seen to lie in a tensor, each once, and to be of its dtype."""
    index = index_arrays([entry.address.index for entry in entries], tensor.shape) if entries else None
    if index is None or {entry.dtype for entry in entries} != {tensor.dtype}:
        return False
    return len(np.unique(np.ravel_multi_index(index, tensor.shape))) == len(entries)


def _check_one_by_one(base: PatchBase, entries: Sequence[WeightChange]) -> None:
    """Say what is wrong with entries, if anything is."""
    shapes = {(tensor.layer, tensor.parameter): tensor for tensor in base.tensors}
    touched, seen = set(), set()
    for entry in entries:
        address = entry.address
        tensor = shapes.get((address.layer, address.parameter))
        if tensor is None:
            raise PatchError(f"the patch changes {address}, but its base does not list that tensor")
        if len(address.index) != len(tensor.shape) or any(
            not 0 <= i < n for i, n in zip(address.index, tensor.shape, strict=True)
        ):
            raise PatchError(f"the patch changes {address}, which is outside a tensor of shape {tensor.shape}")
        if entry.dtype != tensor.dtype:
            raise PatchError(f"the patch changes {address} as {entry.dtype}, but its base says {tensor.dtype}")
        if address in seen:
            raise PatchError(f"the patch changes {address} twice")
        seen.add(address)
        touched.add((address.layer, address.parameter))
    untouched = [tensor.name for tensor in base.tensors if (tensor.layer, tensor.parameter) not in touched]
    if untouched:
        raise PatchError(f"the patch lists '{untouched[0]}' in its base but changes nothing in it")


def changed_weights(
    wanted: Sequence[TensorChange], read: Callable[[str, str], tuple[Array, str]], where: str, done: str
) -> dict[tuple[str, str], Array]:
    """Every touched tensor after the change, all of them checked before the first is handed out.

    Args:
        wanted: The changes.
        read: Gives a tensor's values in canonical layout, and the dtype it is stored in.
        where: The model's name.
        done: What to say when the model already is what the changes would make of it.

    Raises:
        PatchError: A tensor is not the one the patch was made for, or everything is done already.
    """
    result = {}
    for index, change in enumerate(wanted):
        values, dtype = read(*change.key)
        try:
            result[change.key] = change.on(values, dtype, where)
        except PatchError:
            # Only the first tensor can tell "already done" from a half-changed model.
            if index == 0 and all(other.is_done_on(*read(*other.key)) for other in wanted):
                raise PatchError(done) from None
            raise
    return result


def _round_to(grid: IntegerGrid, shape: tuple[int, ...], address: Address, value: float) -> int:
    """The whole number of a grid for a new value.

    Raises:
        PatchError: The grid ends before it; clipped, it would be another change.
    """
    scale, zero = (np.broadcast_to(whole, shape)[address.index] for whole in (grid.scale, grid.zero))
    number = round(value / float(scale)) + int(zero)
    if not grid.low <= number <= grid.high:
        raise outside_grid(grid, float(scale), int(zero), address, value)
    return number


def outside_grid(grid: IntegerGrid, scale: float, zero: int, address: Address, value: float) -> PatchError:
    """The error for a new value that a quantised file cannot hold."""
    low, high = ((end - zero) * scale for end in (grid.low, grid.high))
    return PatchError(
        f"{address} would become {value:.6g}, and the quantised file holds {low:.6g} to {high:.6g} there; "
        "repair that file itself, or quantise the repaired model"
    )
