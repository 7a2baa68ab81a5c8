"""The dtypes weights are stored in: rounding to them, and the exact bits of a stored value.

bfloat16, which NumPy does not have, travels as float32 that happens to use 16 bits only.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from arachne.values import Array

CARRIERS: dict[str, Any] = {
    "float16": np.float16,
    "bfloat16": np.float32,
    "float32": np.float32,
    "float64": np.float64,
}
"""The NumPy dtype in which arrays of each stored dtype travel."""

_CODES = {"float16": ">e", "bfloat16": ">f", "float32": ">f", "float64": ">d"}
"""The same for `struct`, which is far quicker with a single value."""

_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}


def digits(dtype: str) -> int:
    """How many hexadecimal digits the bits of one value have."""
    return 2 * _BYTES[dtype]


def round_to(values: Any, dtype: str) -> Array:
    """Values as they come back once stored: nearest, ties to even; what is too large becomes infinite.

    Returns:
        An array of the same shape, in the carrier of `dtype`.
    """
    with np.errstate(over="ignore"):
        rounded = np.asarray(values).astype(CARRIERS[dtype])
    if dtype != "bfloat16":
        return rounded
    bits = np.asarray(rounded, np.float32).view(np.uint32).astype(np.uint64)
    kept = ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)
    return np.asarray(np.where(np.isfinite(rounded), kept, rounded), np.float32)


def from_bfloat16(bits: Array) -> Array:
    """The values of bfloat16 numbers that were read as 16 bits each, as float32."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def to_bfloat16(values: Array) -> Array:
    """The 16 bits of each value as bfloat16, rounded to nearest, ties to even."""
    rounded = np.ascontiguousarray(round_to(values, "bfloat16"))
    return (rounded.view(np.uint32) >> 16).astype(np.uint16)


def to_bits(value: float, dtype: str) -> str:
    """The stored bits of a value in hex, most significant first; 1.0 in float32 is `3f800000`."""
    if dtype != "bfloat16":
        try:
            return struct.pack(_CODES[dtype], value).hex()
        except OverflowError:  # rounds to infinity, which `struct` refuses and NumPy does
            pass
    stored = np.asarray(round_to(value, dtype))
    text = stored.astype(stored.dtype.newbyteorder(">")).tobytes().hex()
    return text[: digits(dtype)]


def all_bits(values: Array, dtype: str) -> list[str]:
    """`to_bits` of every element of an array, in the array's order."""
    stored = np.ascontiguousarray(round_to(values, dtype)).ravel()
    unsigned = stored.view(f"u{stored.itemsize}")
    if dtype == "bfloat16":
        unsigned = unsigned >> np.uint32(16)
    return [format(bits, f"0{digits(dtype)}x") for bits in unsigned.tolist()]


def from_all_bits(bits: Sequence[str], dtype: str) -> Array:
    """`from_bits` of many, `(n,)`, in the carrier of `dtype`."""
    numbers = np.array([int(one, 16) for one in bits], f"u{_BYTES[dtype]}")
    return from_bfloat16(numbers) if dtype == "bfloat16" else numbers.view(CARRIERS[dtype])


def from_bits(bits: str, dtype: str) -> float:
    """The value of stored bits, exactly."""
    code = _CODES[dtype]
    value: float = struct.unpack(code, bytes.fromhex(bits.ljust(2 * struct.calcsize(code), "0")))[0]
    return value


def shortest(value: float, dtype: str) -> float:
    """The number with the fewest decimals that is rounded to the stored value, for people to read."""
    return float(str(CARRIERS[dtype](value)))
