"""Storages: bits and rounding compared with the standard's definitions, and grids with their own."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arachne.model.values import ParameterInfo
from arachne.weights.storage import STORAGES, IntegerGrid, carrier_of, storage_named

DTYPES = sorted(STORAGES)


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
    assert STORAGES[dtype].bits(value) == bits


@pytest.mark.parametrize("dtype", DTYPES)
def test_too_large_a_value_becomes_infinite(dtype: str) -> None:
    storage = STORAGES[dtype]
    largest = {"float16": 65504.0, "bfloat16": 3.3895313892515355e38, "float32": 3.4028234663852886e38}.get(dtype)
    if largest is None:
        assert np.isfinite(storage.round(1.7e308))
    else:
        assert float(storage.round(largest)) == largest
        assert np.isinf(storage.round(largest * 1.01))
        assert storage.bits(largest * 1.01) == storage.bits(float("inf"))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_step_is_as_long_on_both_sides_of_zero(dtype: str) -> None:
    storage, powers = STORAGES[dtype], 2.0 ** np.arange(-8, 10)  # where the distances on both sides of a value differ
    assert np.array_equal(storage.step(-powers), storage.step(powers))
    assert np.all(storage.round(-powers - storage.step(-powers)) < -powers)


@pytest.mark.parametrize("dtype", DTYPES)
@given(data=st.data())
def test_every_stored_value_survives_bits_and_decimals(dtype: str, data: st.DataObject) -> None:
    storage = STORAGES[dtype]
    bits = format(data.draw(st.integers(0, 16**storage.digits - 1)), f"0{storage.digits}x")
    value = storage.from_bits(bits)
    if np.isfinite(value):
        assert storage.bits(value) == bits
        assert storage.bits(float(repr(storage.shortest(value)))) == bits
        assert storage.round(storage.round(value)) == value
        step = float(storage.step(value))
        assert storage.round(value + step * np.copysign(1, value)) != value  # the next one, away from zero
        assert storage.round(value + 0.4 * step * np.copysign(1, value)) == value or dtype == "float64"


@pytest.mark.parametrize("dtype", DTYPES)
def test_ordinals_number_the_stored_values(dtype: str) -> None:
    storage = STORAGES[dtype]
    values = np.unique(storage.round(np.random.default_rng(0).normal(size=200)))
    assert (np.diff(storage.ordinals(values)) > 0).all()
    assert storage.ordinals([0.0, -0.0]).tolist() == [0, -1]
    above = values + storage.step(values)
    np.testing.assert_array_equal(storage.ordinals(above[values > 0]), storage.ordinals(values[values > 0]) + 1)
    every = np.array([0.0, -0.0, *values])
    assert storage.bits_of(storage.from_ordinals(storage.ordinals(every))) == storage.bits_of(every)


def test_decimals_are_short() -> None:
    assert STORAGES["float32"].shortest(float(np.float32(0.1))) == 0.1
    assert STORAGES["float16"].shortest(float(np.float16(0.1))) == 0.1


@pytest.mark.parametrize("dtype", DTYPES)
def test_many_bits_are_read_as_single_ones_are(dtype: str) -> None:
    storage = STORAGES[dtype]
    values = np.random.default_rng(0).normal(size=200) * 10.0 ** np.arange(-4, 4).repeat(25)
    bits = [storage.bits(float(value)) for value in values]
    assert storage.bits_of(values) == bits
    found = storage.values_of(bits)
    assert found.dtype == storage.carrier
    assert found.tolist() == [storage.from_bits(one) for one in bits]
    np.testing.assert_array_equal(storage.to_float(storage.to_stored(values)), storage.round(values))


@pytest.mark.parametrize(("dtype", "step"), [("float16", 2**-10), ("bfloat16", 2**-7), ("float32", 2**-23)])
def test_a_step_is_the_distance_to_the_next_number(dtype: str, step: float) -> None:
    assert STORAGES[dtype].step([1.0, -1.5, 2.0]).tolist() == [step, step, 2 * step]


def test_a_parameter_tells_its_storage() -> None:
    assert ParameterInfo((2, 3), "bfloat16").storage is STORAGES["bfloat16"]
    with pytest.raises(ValueError, match="got 'int4'"):
        _ = ParameterInfo((2, 3), "int4").storage
    assert carrier_of("bfloat16") is np.float32
    assert carrier_of("int8") is None


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_storage_that_travels_is_the_same_one(dtype: str) -> None:
    assert pickle.loads(pickle.dumps(STORAGES[dtype])) is STORAGES[dtype] is storage_named(dtype)


GRID = IntegerGrid(0.5, 3)


def test_a_grid_rounds_to_its_numbers_and_clips() -> None:
    assert GRID.to_stored(np.array([0.0, 0.6, -0.7, 0.25, 0.75, 1e9, -1e9])).tolist() == [3, 4, 2, 3, 5, 127, -128]
    assert GRID.round([0.6, -0.7, 1e9, -1e9]).tolist() == [0.5, -0.5, 62.0, -65.5]
    assert GRID.round([0.6]).dtype == np.float32


def test_only_a_grid_has_an_end_to_be_brought_back_to() -> None:
    far = np.array([-90.0, -0.3, 0.2, 90.0])
    grid = IntegerGrid(np.array([0.5, 1.0, 1.0, 0.25]), 2, -128, 127, "int8")
    np.testing.assert_array_equal(grid.clip(far), [-65.0, -0.3, 0.2, 31.25])
    assert STORAGES["float16"].clip(far) is far


def test_bits_of_a_grid_are_the_stored_number() -> None:
    assert GRID.bits_of([0.0, -65.5, -2.0]) == ["03", "80", "ff"]
    assert GRID.values_of(["03", "80", "ff"]).tolist() == [0.0, -65.5, -2.0]
    assert GRID.from_bits(GRID.bits(7.5)) == 7.5
    assert GRID.shortest(7.5) == 7.5
    assert GRID.from_ordinals(GRID.ordinals([7.5, -65.5])).tolist() == [7.5, -65.5]


def test_the_step_of_a_grid_is_its_scale_and_nothing_at_its_ends() -> None:
    assert GRID.step([0.0, 1.0, -1.0, 62.0, -65.5]).tolist() == [0.5, 0.5, 0.5, 0.0, 0.0]


@given(st.integers(-128, 127), st.floats(1e-6, 1e3), st.integers(-128, 127))
def test_every_number_of_a_grid_survives(stored: int, scale: float, zero: int) -> None:
    grid = IntegerGrid(scale, zero)
    assert grid.to_stored(grid.to_float(np.array([stored], np.int8))).tolist() == [stored]


def test_channels_of_a_grid_have_their_own_scale() -> None:
    grid = IntegerGrid(np.array([[0.5], [2.0]]), np.array([[0], [10]]), 0, 255, "uint8")
    values = np.array([[0.6, 0.9], [-7.0, 500.0]])
    assert grid.round(values).tolist() == [[0.5, 1.0], [-8.0, 490.0]]
    assert grid.bits_of(values) == ["01", "02", "06", "ff"]
    assert grid.step(values).tolist() == [[0.5, 0.5], [2.0, 0.0]]
    chosen = grid.at(np.array([2, 1]), (2, 2))
    assert chosen.round([-7.0, 0.9]).tolist() == [-8.0, 1.0]
    assert STORAGES["float32"].at(np.array([1]), (2, 2)) is STORAGES["float32"]


def test_a_wide_grid_travels_in_float64() -> None:
    grid = IntegerGrid(1e-3, 0, -(2**31), 2**31 - 1, "int32")
    assert grid.to_stored(grid.to_float(np.array([2**31 - 1, -(2**31)], np.int32))).tolist() == [2**31 - 1, -(2**31)]


@pytest.mark.parametrize(
    ("scale", "low", "high"), [(0.0, -128, 127), (np.nan, -128, 127), (1.0, -129, 127), (1.0, 5, 5)]
)
def test_a_grid_that_makes_no_sense_is_refused(scale: float, low: int, high: int) -> None:
    with pytest.raises(ValueError, match="grid"):
        IntegerGrid(scale, 0, low, high)


def test_a_grid_refuses_what_is_not_a_number() -> None:
    with pytest.raises(ValueError, match="not a number"):
        GRID.round([np.nan])
