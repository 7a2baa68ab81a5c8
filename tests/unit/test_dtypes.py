"""Bits and rounding, compared with NumPy and PyTorch's definitions worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arachne.dtypes import CARRIERS, all_bits, digits, from_all_bits, from_bits, round_to, shortest, to_bits

DTYPES = sorted(CARRIERS)


@pytest.mark.parametrize(
    ("dtype", "value", "bits"),
    [
        ("float16", 1.0, "3c00"),
        ("bfloat16", 1.0, "3f80"),
        ("float32", 1.0, "3f800000"),
        ("float64", 1.0, "3ff0000000000000"),
        ("float32", -0.0, "80000000"),
        ("float32", 1e-45, "00000001"),
        ("bfloat16", 1 + 1 / 256, "3f80"),  # a tie goes to the even neighbour
        ("bfloat16", 1 + 3 / 256, "3f82"),
        ("bfloat16", 1.004, "3f81"),  # just above the tie
    ],
)
def test_bits_are_those_of_the_standard(dtype: str, value: float, bits: str) -> None:
    assert to_bits(value, dtype) == bits


@pytest.mark.parametrize("dtype", DTYPES)
def test_too_large_a_value_becomes_infinite(dtype: str) -> None:
    largest = {"float16": 65504.0, "bfloat16": 3.3895313892515355e38, "float32": 3.4028234663852886e38}.get(dtype)
    if largest is None:
        assert np.isfinite(round_to(1.7e308, dtype))
    else:
        assert float(round_to(largest, dtype)) == largest
        assert np.isinf(round_to(largest * 1.01, dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@given(data=st.data())
def test_every_stored_value_survives_bits_and_decimals(dtype: str, data: st.DataObject) -> None:
    bits = format(data.draw(st.integers(0, 16 ** digits(dtype) - 1)), f"0{digits(dtype)}x")
    value = from_bits(bits, dtype)
    if np.isfinite(value):
        assert to_bits(value, dtype) == bits
        assert to_bits(float(repr(shortest(value, dtype))), dtype) == bits
        assert round_to(round_to(value, dtype), dtype) == value


def test_decimals_are_short() -> None:
    assert shortest(float(np.float32(0.1)), "float32") == 0.1
    assert shortest(float(np.float16(0.1)), "float16") == 0.1


@pytest.mark.parametrize("dtype", list(CARRIERS))
def test_many_bits_are_read_as_single_ones_are(dtype: str) -> None:
    values = np.random.default_rng(0).normal(size=200) * 10.0 ** np.arange(-4, 4).repeat(25)
    bits = [to_bits(float(value), dtype) for value in values]
    assert all_bits(values, dtype) == bits
    found = from_all_bits(bits, dtype)
    assert found.dtype == CARRIERS[dtype]
    assert found.tolist() == [from_bits(one, dtype) for one in bits]
