"""Storage: the numbers that a stored parameter can hold, with rounding to them and their exact bits.

Values travel in a NumPy dtype, the carrier, which holds every storable number exactly. bfloat16, which NumPy does not
have, travels as float32 that happens to use 16 bits only; an integer grid travels as the real numbers it stands for.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

WIDEST_FLOAT32_GRID = 1 << 20
"""A grid with at most this many numbers travels as float32, which tells neighbours apart; a wider one as float64."""


class Storage(ABC):
    """The numbers that a stored parameter can hold.

    Attributes:
        name: The dtype in which they are stored, such as `bfloat16` or `int8`.
        carrier: The NumPy dtype in which their values travel.
        digits: How many hexadecimal digits the bits of one value have.
    """

    name: str
    carrier: Any
    digits: int

    @abstractmethod
    def to_stored(self, values: Array) -> Array:
        """Encode values as they lie in a file, rounded to the nearest storable ones."""

    @abstractmethod
    def to_float(self, stored: Array) -> Array:
        """Decode what `to_stored` gave, exactly, into the carrier."""

    @abstractmethod
    def ordinals(self, values: Any) -> Array:
        """Number the stored values in ascending order, int64: neighbours differ by one, and 0.0 from -0.0 too."""

    @abstractmethod
    def from_ordinals(self, ordinals: Array) -> Array:
        """Return the values with these numbers, in the carrier: the inverse of `ordinals`."""

    @abstractmethod
    def round(self, values: Any) -> Array:
        """Round to the nearest storable values, ties to even; the result has the same shape, in the carrier."""

    @abstractmethod
    def step(self, values: Any) -> Array:
        """Return the distance from each value, once stored, to the next storable one away from zero, in float64."""

    def clip(self, values: Array) -> Array:
        """Bring values beyond the largest storable ones, or the smallest, back to them; nothing is rounded."""
        return values

    def at(self, flat: Array, shape: tuple[int, ...]) -> Storage:
        """Return the storage of single elements of a parameter of this shape, by their positions once flattened."""
        return self

    def bits_of(self, values: Any) -> list[str]:
        """Return the stored bits of each value in hex, most significant first, in the array's order."""
        stored = np.ascontiguousarray(self.to_stored(np.asarray(values))).ravel()
        return [format(bits, f"0{self.digits}x") for bits in stored.view(f"u{stored.itemsize}").tolist()]

    def values_of(self, bits: Sequence[str]) -> Array:
        """Return the values of many bits, `(n,)`, in the carrier: the inverse of `bits_of`."""
        unsigned = np.array([int(one, 16) for one in bits], f"u{self.digits // 2}")
        return self.to_float(unsigned)

    def bits(self, value: float) -> str:
        """Return the stored bits of one value in hex; 1.0 in float32 is `3f800000`."""
        return self.bits_of(value)[0]

    def from_bits(self, bits: str) -> float:
        """Return the value of stored bits, exactly."""
        return float(self.values_of([bits])[0])

    def shortest(self, value: float) -> float:
        """Return the number with the fewest decimals that is rounded to a stored value, for people to read."""
        return float(str(self.carrier(value)))


class FloatStorage(Storage):
    """Floating-point numbers that NumPy has: `float16`, `float32` or `float64`. Too large a value becomes infinite."""

    def __init__(self, carrier: Any, code: str) -> None:
        self.name, self.carrier, self.digits = np.dtype(carrier).name, carrier, 2 * np.dtype(carrier).itemsize
        self._code = code  # of `struct`, which is far quicker with a single value

    def __repr__(self) -> str:
        """`<Storage float32>`."""
        return f"<Storage {self.name}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return storage_named, (self.name,)

    def round(self, values: Any) -> Array:
        with np.errstate(over="ignore"):
            return np.asarray(values).astype(self.carrier)

    def to_stored(self, values: Array) -> Array:
        return self.round(values)

    def to_float(self, stored: Array) -> Array:
        return np.asarray(stored).view(self.carrier)

    def ordinals(self, values: Any) -> Array:
        stored = np.ascontiguousarray(self.to_stored(np.asarray(values)))
        signed = stored.view(f"i{self.digits // 2}").astype(np.int64)
        return np.where(
            signed < 0, -(signed - self._lowest) - 1, signed
        )  # a sign bit and a magnitude, not a complement

    def from_ordinals(self, ordinals: Array) -> Array:
        signed = np.where(ordinals < 0, self._lowest - ordinals - 1, ordinals)
        return self.to_float(signed.astype(f"i{self.digits // 2}").view(f"u{self.digits // 2}"))

    @property
    def _lowest(self) -> int:
        """The smallest whole number of the same width: the sign bit alone, which is -0.0."""
        return int(np.iinfo(f"i{self.digits // 2}").min)

    def step(self, values: Any) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):
            return np.spacing(np.abs(self.round(values))).astype(np.float64)

    def bits(self, value: float) -> str:
        try:
            return struct.pack(self._code, value).hex()
        except OverflowError:  # rounds to infinity, which `struct` refuses and NumPy does
            return super().bits(value)

    def from_bits(self, bits: str) -> float:
        value: float = struct.unpack(self._code, bytes.fromhex(bits.ljust(2 * struct.calcsize(self._code), "0")))[0]
        return value


class Bfloat16Storage(FloatStorage):
    """The upper half of a float32: eight bits of exponent, seven of fraction."""

    def __init__(self) -> None:
        super().__init__(np.float32, ">f")
        self.name, self.digits = "bfloat16", 4

    def round(self, values: Any) -> Array:
        rounded = super().round(values)
        bits = np.asarray(rounded, np.float32).view(np.uint32).astype(np.uint64)
        nearest = ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)
        return np.asarray(np.where(np.isfinite(rounded), nearest, rounded), np.float32)

    def to_stored(self, values: Array) -> Array:
        return (np.ascontiguousarray(self.round(values)).view(np.uint32) >> 16).astype(np.uint16)

    def to_float(self, stored: Array) -> Array:
        return (stored.astype(np.uint32) << 16).view(np.float32)

    def step(self, values: Any) -> Array:
        return super().step(self.round(values)) * 2.0**16

    def bits(self, value: float) -> str:
        return Storage.bits(self, value)


class IntegerGrid(Storage):
    """Whole numbers q from `low` to `high` that stand for the values `(q - zero) * scale`; values outside are clipped.

    Args:
        scale: The distance between two neighbours, positive: one number, or an array that broadcasts to the parameter,
            such as `(out, 1)` for a scale per channel.
        zero: The whole number that stands for 0.0: one number, or an array like `scale`.
        low: The smallest stored number.
        high: The largest stored number.
        dtype: The NumPy dtype in which it is stored, such as `int8`.
    """

    def __init__(
        self, scale: Array | float, zero: Array | int = 0, low: int = -128, high: int = 127, dtype: str = "int8"
    ) -> None:
        self.scale, self.zero = np.asarray(scale, np.float64), np.asarray(zero, np.int64)
        limits = np.iinfo(dtype)
        if not (np.isfinite(self.scale) & (self.scale > 0)).all():
            raise ValueError("the scale of an integer grid is a positive number, got one that is not")
        if not limits.min <= low < high <= limits.max:
            raise ValueError(
                f"an integer grid in {dtype} lies within {limits.min} to {limits.max}, got {low} to {high}"
            )
        self.low, self.high, self.name = low, high, dtype
        self.carrier = np.float32 if high - low < WIDEST_FLOAT32_GRID else np.float64
        self.digits = 2 * np.dtype(dtype).itemsize

    def __reduce__(self) -> tuple[Any, ...]:
        return IntegerGrid, (self.scale, self.zero, self.low, self.high, self.name)

    def to_stored(self, values: Array) -> Array:
        wide = np.asarray(values, np.float64)
        if np.isnan(wide).any():
            raise ValueError(f"an integer grid in {self.name} cannot hold a value that is not a number")
        nearest = np.clip(np.rint(wide / self.scale) + self.zero, self.low, self.high)
        return nearest.astype(self.name)

    def to_float(self, stored: Array) -> Array:
        numbers = np.asarray(stored)
        signed = (numbers if numbers.dtype == self.name else numbers.view(self.name)).astype(np.int64)
        return np.asarray((signed - self.zero) * self.scale, self.carrier)

    def ordinals(self, values: Any) -> Array:
        return self.to_stored(np.asarray(values)).astype(np.int64)

    def from_ordinals(self, ordinals: Array) -> Array:
        return self.to_float(ordinals.astype(self.name))

    def round(self, values: Any) -> Array:
        return self.to_float(self.to_stored(np.asarray(values)))

    def clip(self, values: Array) -> Array:
        low, high = ((end - self.zero) * self.scale for end in (self.low, self.high))
        return np.clip(values, low, high)

    def step(self, values: Any) -> Array:
        """Return the scale of each value; 0 at the end of the grid that lies away from zero."""
        stored = self.to_stored(np.asarray(values)).astype(np.int64)
        ends = np.where(stored < self.zero, stored == self.low, stored == self.high)
        return np.where(ends, 0.0, np.broadcast_to(self.scale, stored.shape))

    def at(self, flat: Array, shape: tuple[int, ...]) -> IntegerGrid:
        scale, zero = (np.broadcast_to(whole, shape).flat[flat] for whole in (self.scale, self.zero))
        return IntegerGrid(scale, zero, self.low, self.high, self.name)


class WholeNumbers(IntegerGrid):
    """All whole numbers of a dtype, which stand for themselves: how a file holds them."""

    def __init__(self, dtype: str) -> None:
        limits = np.iinfo(dtype)
        super().__init__(1.0, 0, int(limits.min), int(limits.max), dtype)

    def __reduce__(self) -> tuple[Any, ...]:
        return WholeNumbers, (self.name,)

    def shortest(self, value: float) -> float:
        return int(value)


STORAGES: dict[str, FloatStorage] = {
    "float16": FloatStorage(np.float16, ">e"),
    "bfloat16": Bfloat16Storage(),
    "float32": FloatStorage(np.float32, ">f"),
    "float64": FloatStorage(np.float64, ">d"),
}
"""The floating-point storages, by the dtype's name."""

BFLOAT16 = STORAGES["bfloat16"]

FILE_STORAGES: dict[str, Storage] = {
    **STORAGES,
    **{name: WholeNumbers(name) for name in ("int8", "uint8", "int32")},
}
"""The storages of the numbers that lie in files, by the dtype's name; whole numbers are not scaled there."""


def carrier_of(dtype: str) -> Any:
    """Return the NumPy dtype in which values of a stored dtype travel; None, which means as they are, for others."""
    return STORAGES[dtype].carrier if dtype in STORAGES else None


def storage_named(dtype: str) -> FloatStorage:
    """Look a floating-point storage up by the dtype's name.

    Raises:
        ValueError: There is none of this name.
    """
    if dtype not in STORAGES:
        raise ValueError(f"weights are stored in {', '.join(STORAGES)}, got '{dtype}'")
    return STORAGES[dtype]
