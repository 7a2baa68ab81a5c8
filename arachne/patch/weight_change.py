"""One changed weight: its address, and the stored bits before and after."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from arachne.errors import PatchError
from arachne.model.values import Address, Array
from arachne.weights.storage import FILE_STORAGES, Storage


@dataclass(frozen=True, slots=True)
class WeightChange:
    """One changed weight. Values, not differences: a difference often misses the old value by a rounding.

    Attributes:
        address: Which weight.
        dtype: What it is stored in: `float16`, `bfloat16`, `float32` or `float64`.
        old_bits: The stored bits before, in hex, most significant first.
        new_bits: The stored bits after.
    """

    address: Address
    dtype: str
    old_bits: str
    new_bits: str

    @classmethod
    def of(cls, address: Address, dtype: str, old: float, new: float) -> WeightChange:
        """An entry from values; the new one is rounded to the stored dtype.

        Raises:
            PatchError: A value is not finite, or too large for the dtype.
        """
        storage = FILE_STORAGES[dtype]
        entry = cls(address, dtype, storage.bits(old), storage.bits(new))
        for name, value, stored in (("old", old, entry.old), ("new", new, entry.new)):
            if not math.isfinite(value):
                raise PatchError(f"the {name} value of {address} is {value}, expected a finite number")
            if not math.isfinite(stored):
                raise PatchError(f"the {name} value of {address} is {value}, which is out of range for {dtype}")
        return entry

    @property
    def storage(self) -> Storage:
        """The storage of the weight."""
        return FILE_STORAGES[self.dtype]

    @property
    def old(self) -> float:
        """The value before, exactly."""
        return self.storage.from_bits(self.old_bits)

    @property
    def new(self) -> float:
        """The value after, exactly."""
        return self.storage.from_bits(self.new_bits)

    def inverse(self) -> WeightChange:
        """The entry that takes this one back."""
        return WeightChange(self.address, self.dtype, self.new_bits, self.old_bits)


def changes_of_tensor(
    key: tuple[str, str], dtype: str, old: Array, new: Array, most: int | None = None
) -> list[WeightChange]:
    """One entry per weight of a tensor whose stored bits change, in order; no more than `most` of them.

    Raises:
        PatchError: A weight that changes is not finite, or becomes so.
    """
    storage = FILE_STORAGES[dtype]
    before, after = (np.ascontiguousarray(storage.round(values)) for values in (old, new))
    unsigned = f"u{before.itemsize}"
    where = np.argwhere(before.view(unsigned) != after.view(unsigned))[:most]
    index = tuple(where.T)
    before, after = before[index], after[index]
    if not (np.isfinite(before).all() and np.isfinite(after).all()):
        raise PatchError(f"'{'.'.join(key)}' holds a weight that is not finite, or out of range for {dtype}")
    bits = zip(where.tolist(), storage.bits_of(before), storage.bits_of(after), strict=True)
    return [WeightChange(Address(*key, tuple(one)), dtype, old_bits, new_bits) for one, old_bits, new_bits in bits]
