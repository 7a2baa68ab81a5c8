from __future__ import annotations

import pickle
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from arachne.data.labelled import LabelledData, row_hashes
from arachne.data.lazy import memmap as mapped
from arachne.errors import DataError, EnvironmentFaultError
from arachne.model.lazy import LazyArray, is_lazy
from arachne.tasks import SINGLE_LABEL


def small(**more: object) -> LabelledData:
    return LabelledData(np.arange(12, dtype=np.float32).reshape(4, 3), np.array([0, 1, 2, 1]), **more)  # type: ignore[arg-type]  # fields by keyword


def test_take_keeps_everything_of_the_chosen_rows() -> None:
    data = small(class_names=("a", "b", "c"), names=("p", "q", "r", "s"), columns={"sex": np.array(list("fmfm"))})
    part = data.take([3, 0])
    assert part.labels.tolist() == [1, 0]
    assert part.names == ("s", "p")
    assert part.columns["sex"].tolist() == ["m", "f"]
    assert np.array_equal(part.inputs, np.array([[9, 10, 11], [0, 1, 2]]))  # type: ignore[arg-type]  # one array
    assert part.class_names == data.class_names


def test_take_of_a_mapping_takes_rows_of_every_input() -> None:
    data = LabelledData({"a": np.arange(4), "b": np.arange(8).reshape(4, 2)}, np.zeros(4))
    part = data.take(np.array([2]))
    assert {name: array.tolist() for name, array in part.inputs.items()} == {"a": [2], "b": [[4, 5]]}  # type: ignore[union-attr]  # a mapping


def test_hash_depends_on_content_alone() -> None:
    data = small()
    assert data.sha256() == small(class_names=("a", "b", "c"), source="elsewhere").sha256()
    changed = np.array(data.inputs)
    changed[3, 2] += 1
    assert LabelledData(changed, data.labels).sha256() != data.sha256()
    assert LabelledData(data.inputs, np.array([0, 1, 2, 2])).sha256() != data.sha256()
    assert LabelledData(np.asarray(data.inputs).reshape(4, 1, 3), data.labels).sha256() != data.sha256()


def test_class_name_falls_back_to_the_number() -> None:
    assert small(class_names=("cat", "dog", "cow")).class_name(1) == "dog"
    assert small().class_name(1) == "1"


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (LabelledData(np.zeros((4, 3, 2)), np.array([0, 2, 2, 0])), "4 inputs (3, 2), 2 different labels"),
        (LabelledData(np.zeros((2, 3)), np.array([0, 1]), ("cat", "dog")), "2 inputs (3,), 2 classes: cat, dog"),
        (
            LabelledData({"a": np.zeros((1, 3)), "b": np.zeros((1, 5))}, np.array([1]), tuple("abcdefghijklm")),
            "1 input a (3,), b (5,), 13 classes: a, b, c, d, e, f, g, h, i, j, …",
        ),
    ],
)
def test_printed_data_tells_what_there_is_and_no_numbers(data: LabelledData, text: str) -> None:
    assert str(data) == text


def test_labels_are_int64_whatever_they_came_as() -> None:
    assert LabelledData(np.zeros((2, 1)), np.array([1, 0], dtype=np.uint8)).labels.dtype == np.int64


def test_labels_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(DataError, match="expected one class number per input as labels"):
        LabelledData(np.zeros((2, 1)), np.array(["a", "b"]))


@pytest.mark.parametrize("labels", [[0, 0.5], [0, np.nan]])
def test_labels_that_are_no_class_numbers_are_refused_where_classes_are_wanted(labels: object) -> None:
    data = LabelledData(np.zeros((2, 1)), np.array(labels))
    with pytest.raises(DataError, match="expected the number of a class as the label of row 1"):
        SINGLE_LABEL.check(np.zeros((2, 3)), data.labels)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"names": ("a",)}, "got 1 names and 4 labels"),
        ({"columns": {"sex": np.zeros(3)}}, "got 3 rows in 'sex' and 4 labels"),
    ],
)
def test_lengths_that_differ_are_refused(more: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        small(**more)


def test_row_hashes_tell_rows_apart_and_equal_rows_together() -> None:
    rows = np.array([[1, 2], [3, 4], [1, 2]])
    first, second, third = row_hashes(rows)
    assert first == third != second
    one, other = ({"a": rows, "b": second} for second in (np.array([0, 0, 1]), np.array([1, 0, 1])))
    assert [a == b for a, b in zip(row_hashes(one), row_hashes(other), strict=True)] == [False, True, True]


@pytest.mark.parametrize("mode", [None, "r"])
def test_many_rows_stay_where_they_are(
    mode: Literal["r"] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = np.arange(4000, dtype=np.float32).reshape(1000, 4)
    np.save(tmp_path / "x.npy", values)
    data = LabelledData(np.load(tmp_path / "x.npy", mmap_mode=mode), np.zeros(1000))
    assert type(data.take(np.arange(0, 1000, 2)).inputs) is np.ndarray
    monkeypatch.setattr(mapped, "MAX_COPIED_BYTES", 100)
    part = data.take(np.arange(0, 1000, 2))
    assert isinstance(part.inputs, LazyArray)
    assert not is_lazy(part.inputs)
    assert np.array_equal(part.inputs, values[::2])
    assert np.array_equal(part.inputs.take(np.arange(100)), values[:200:2])
    assert isinstance(pickle.loads(pickle.dumps(part.inputs)), LazyArray)
    held = part.inputs.read()
    assert part.inputs.read() is held  # nobody copies what somebody has
    assert data.take(np.arange(1000)) is data


def test_large_memory_mapped_arrays_stay_memory_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped, "MAX_IN_MEMORY_BYTES", 100)
    np.save(tmp_path / "x.npy", np.zeros((1000, 4), np.float32))
    assert isinstance(mapped.as_type(np.load(tmp_path / "x.npy", mmap_mode="r"), np.float64), np.memmap)


def test_no_room_on_the_disk_is_an_environment_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "x.npy", np.zeros(4))
    like = np.load(tmp_path / "x.npy", mmap_mode="r")
    with pytest.raises(EnvironmentFaultError, match="no room for"):
        mapped.allocate_like((2**40, 2**10), np.float32, like)
