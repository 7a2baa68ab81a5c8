"""Files of others: what is opened, what is believed, and what becomes of bytes nobody should have written."""

from __future__ import annotations

import io
import json
import math
import os
import re
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from arachne.data.read import read_data
from arachne.errors import ArachneError, DataError, InputError, PatchError
from arachne.io import npz, reading
from arachne.patch import Patch

QUICK = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@QUICK
@given(values)
def test_json_of_sane_values_is_read_as_the_standard_library_reads_it(value: object) -> None:
    text = json.dumps(value)
    if re.search(r"NaN|Infinity|\\ud[89a-f]|\d{19}", text):  # refused, or a pair of halves, or perhaps out of range
        return
    assert reading.parse_json(text) == json.loads(text)


@QUICK
@given(st.text())
def test_any_text_is_json_or_a_value_error(text: str) -> None:
    try:
        found = reading.parse_json(text)
    except ValueError:
        return
    json.dumps(found, allow_nan=False).encode()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[" * 200 + "]" * 200, "nested too deeply"),
        ("[" * 100_000, "nested too deeply"),
        ("9" * 500, "out of range"),
        ("1e999", "out of range"),
        ("[NaN]", "finite"),
        ('{"a": 1, "a": 2}', "'a' twice"),
        ('"\\ud800"', "surrogate"),
        ('{"\\udc00": 1}', "surrogate"),
        ("[" + "0," * 3_000_001 + "0]", "more than"),
    ],
)
def test_json_that_nobody_needs_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        reading.parse_json(text)


def test_infinite_numbers_are_read_where_they_are_asked_for() -> None:
    assert reading.parse_json(b'{"mask": -Infinity, "large": 1e999}', finite=False) == {
        "mask": -math.inf,
        "large": math.inf,
    }


def test_pipes_devices_loops_and_impossible_names_are_no_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    for path in (tmp_path, tmp_path / "pipe", "/dev/zero", tmp_path / "loop", tmp_path / "none", "a\0b", "a" * 5000):
        with pytest.raises(DataError):
            reading.ordinary_file(path, "data", DataError)


@pytest.mark.parametrize(
    ("inside", "hint"),
    [("patch.json", "did you mean '.*patch.json'?"), ("model.safetensors", "--model.*--weights"), ("x", "a file$")],
)
def test_a_folder_in_place_of_a_file_gets_a_hint(inside: str, hint: str, tmp_path: Path) -> None:
    (tmp_path / inside).write_bytes(b"")
    with pytest.raises(InputError, match=f"is a directory, expected a file.*{hint}" if inside != "x" else hint):
        reading.ordinary_file(tmp_path, "model")


def test_small_file_takes_little_memory_whatever_is_allowed(tmp_path: Path) -> None:
    small = tmp_path / "a.png"
    small.write_bytes(b"0123456789")
    tracemalloc.start()
    try:
        assert reading.read_bytes(small, "picture", 1 << 30) == b"0123456789"
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_whatever_a_parser_raises_becomes_one_sentence_but_our_errors_and_memory_stay() -> None:
    with pytest.raises(InputError, match=r"cannot read it: it has no 'a'"), reading.parse_errors_as("it", InputError):
        raise KeyError("a")
    with pytest.raises(DataError, match="ours"), reading.parse_errors_as("it", InputError):
        raise DataError("ours")
    with pytest.raises(MemoryError), reading.parse_errors_as("it", InputError):
        raise MemoryError


@QUICK
@given(content=st.binary(max_size=300), name=st.sampled_from(["a.npz", "a.csv", "a.csv.gz", "a.parquet", "a.tsv"]))
def test_any_bytes_are_data_or_one_sentence(content: bytes, name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ArachneError):  # random bytes hold no labels
        read_data(tmp_path / name)


@QUICK
@given(
    cells=st.lists(
        st.lists(st.text(max_size=5) | st.integers().map(str), min_size=2, max_size=2), min_size=1, max_size=4
    )
)
def test_any_cells_are_a_table_or_one_sentence(cells: list[list[str]], tmp_path: Path) -> None:
    import csv

    with (tmp_path / "a.csv").open("w", newline="", encoding="utf-8", errors="replace") as stream:
        csv.writer(stream).writerows([["y", "a"], *cells])
    try:
        data = read_data(tmp_path / "a.csv")
    except (ArachneError, DataError):
        return
    assert len(data) == len(data.inputs)


@QUICK
@given(
    shape=st.lists(st.integers(-2, 2**40), max_size=5),
    kind=st.sampled_from(["<f4", "|O", "<U0", "<U2", "<M8[s]", "|V3"]),
)
def test_any_claimed_shape_is_held_against_the_bytes(shape: list[int], kind: str, tmp_path: Path) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": kind, "fortran_order": False, "shape": tuple(shape)})
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x.npy", header.getvalue() + bytes(64))
    try:
        found = npz.read_npz(tmp_path / "a.npz", "data", DataError)
    except DataError:
        return
    assert found["x"].nbytes == 64


@QUICK
@given(document=st.dictionaries(st.sampled_from(["schema", "base", "entries", "provenance", "evidence"]), values))
def test_any_object_is_a_patch_or_one_sentence(document: dict[str, object]) -> None:
    with pytest.raises(PatchError):
        Patch.from_json(json.dumps({**document, "schema": "arachne.patch/1"}))


def test_fortran_order_text_bytes_and_empty_arrays_come_back_as_saved(tmp_path: Path) -> None:
    arrays = {
        "f": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "u": np.array(["a", "bé"]),
        "s": np.array([b"a", b"b"]),
        "e": np.zeros((0, 3), np.float32),
        "n": np.array(5),
    }
    np.savez_compressed(tmp_path / "a.npz", **arrays)  # type: ignore[arg-type]  # numpy's stub takes one array type
    found = npz.read_npz(tmp_path / "a.npz", "data", DataError)
    for name, array in arrays.items():
        wanted = array.astype(str) if array.dtype.kind == "S" else array
        np.testing.assert_array_equal(found[name], wanted)
