from __future__ import annotations

import io
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

from arachne.data.classes import read_class_names
from arachne.data.labelled import LabelledData
from arachne.data.lazy import memmap as mapped
from arachne.data.read import read_data
from arachne.errors import DataError, UsageError

DIGITS, LABELS = load_digits(return_X_y=True)
X = np.arange(24, dtype=np.float32).reshape(6, 4)
Y = np.array([0, 1, 2, 0, 1, 2])


def refusal(source: Any, **options: Any) -> str:
    """The one sentence bad data is refused with."""
    with pytest.raises(DataError) as caught:
        read_data(source, **options)
    message = str(caught.value)
    assert "\n" not in message
    assert message[0] == message[0].lower()
    assert not message.endswith(".")
    return message


def test_labelled_data_comes_back_as_it_is() -> None:
    data = LabelledData(X, Y)
    assert read_data(data) is data
    assert read_data(data, preprocess="scale=2").inputs[1, 0] == 8  # type: ignore[index]  # one array
    assert len(read_data(data, limit=2)) == 2


def test_arrays_become_float32_and_integers_stay() -> None:
    data = read_data((DIGITS, LABELS), n_classes=10)
    assert (data.inputs.dtype, len(data), data.class_names) == (np.float32, 1797, None)  # type: ignore[union-attr]  # one array
    for dtype in (np.uint8, np.int64, np.int32, np.float16, np.bool_):
        assert read_data((X.astype(dtype), Y)).inputs.dtype == dtype  # type: ignore[union-attr]  # one array


def test_mapping_of_inputs_is_kept() -> None:
    data = read_data(({"ids": X.astype(int), "mask": np.ones((6, 4))}, Y))
    assert isinstance(data.inputs, dict)
    assert {name: array.dtype.name for name, array in data.inputs.items()} == {"ids": "int64", "mask": "float32"}


def test_npz_with_x_and_y_and_names_and_metadata(tmp_path: Path) -> None:
    path = tmp_path / "val.npz"
    sex = np.array(list("fmfmfm"))
    np.savez_compressed(path, x=X, y=Y, class_names=["a", "b", "c"], group_sex=sex, meta_id=Y * 2, person=Y, tile=48)
    data = read_data(path, n_classes=3)
    assert np.array_equal(data.inputs, X)  # type: ignore[arg-type]  # one array
    assert data.class_names == ("a", "b", "c")
    assert {name: column.tolist() for name, column in data.columns.items()} == {
        "sex": list("fmfmfm"),
        "id": [0, 2, 4, 0, 2, 4],
        "person": Y.tolist(),
    }
    assert data.source == str(path)
    assert data.names_assumed


def test_names_of_the_model_renumber_a_source_with_an_order_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "val.npz"
    np.savez(path, x=X, y=Y, class_names=["a", "b", "c"])
    data = read_data(path, classes="c,a,b")
    assert (data.labels.tolist(), data.class_names, data.names_assumed) == ([1, 2, 0, 1, 2, 0], ("c", "a", "b"), False)
    other_words = read_data(path, classes="ape,bee,cow")
    assert (other_words.labels.tolist(), other_words.class_names) == (Y.tolist(), ("ape", "bee", "cow"))


def test_npz_without_x_is_a_mapping_of_inputs(tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", input_ids=X.astype(int), attention_mask=np.ones((6, 4), int), length=Y, y=Y, group_a=Y)
    data = read_data(str(tmp_path / "t.npz"), limit=4)
    assert isinstance(data.inputs, dict)
    assert set(data.inputs) == {"input_ids", "attention_mask", "length"}
    assert len(data) == len(data.inputs["length"]) == len(data.columns["a"]) == 4


def test_npy_folder_is_memory_mapped_and_stays_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped, "MAX_IN_MEMORY_BYTES", 1000)
    np.save(tmp_path / "x.npy", (DIGITS * 15).astype(np.uint8))
    np.save(tmp_path / "y.npy", LABELS)
    data = read_data(tmp_path)
    assert isinstance(data.inputs, np.memmap)
    scaled = read_data(tmp_path, preprocess="scale=1/255")
    assert isinstance(scaled.inputs, np.memmap)
    assert np.allclose(scaled.inputs, (DIGITS * 15).astype(np.uint8) / 255)
    np.save(tmp_path / "x.npy", DIGITS)
    assert read_data(tmp_path).inputs.dtype == np.float32  # type: ignore[union-attr]  # one array


@pytest.mark.parametrize(
    ("labels", "classes", "n_classes", "numbers"),
    [
        ([0.0, 2.0, 1.0, 0.0, 0.0, 0.0], None, 3, [0, 2, 1, 0, 0, 0]),
        (["2", "0", "1", "0", "0", "0"], None, 3, [2, 0, 1, 0, 0, 0]),
        (["00002", "0", "1", "0", "0", "0"], None, 3, [2, 0, 1, 0, 0, 0]),
        (["dog", "cat", "cow", "cat", "cat", "cat"], "cat,dog,cow", 3, [1, 0, 2, 0, 0, 0]),
        (["dog", "cat", "cow", "cat", "cat", "cat"], ["cow", "cat", "dog", "ape"], None, [2, 1, 0, 1, 1, 1]),
        (["dog", "cat", "cow", "cat", "cat", "cat"], None, 3, [2, 0, 1, 0, 0, 0]),
        (["3", "5", "3", "5", "5", "5"], "3,5,8", 3, [0, 1, 0, 1, 1, 1]),
        ([[1], [0], [2], [0], [0], [0]], None, 3, [1, 0, 2, 0, 0, 0]),
        (np.eye(6), None, 6, [0, 1, 2, 3, 4, 5]),
        ([True, False, True, False, False, True], None, 2, [1, 0, 1, 0, 0, 1]),
        (np.array(list("ababab"), dtype=object), None, 2, [0, 1, 0, 1, 0, 1]),
    ],
)
def test_labels_of_many_kinds_become_class_numbers(
    labels: Any, classes: Any, n_classes: int | None, numbers: list[int]
) -> None:
    data = read_data((X, labels), classes=classes, n_classes=n_classes)
    assert data.labels.tolist() == numbers
    assert data.labels.dtype == np.int64


def test_sorted_names_are_the_mapping_only_when_nothing_is_in_doubt() -> None:
    words = ["dog", "cat", "cow", "cat", "cat", "cat"]
    data = read_data((X, words), n_classes=3)
    assert data.class_names == ("cat", "cow", "dog")
    assert read_data((X, words)).names_assumed
    message = refusal((X, words), n_classes=4)
    assert message.startswith("found 3 class names (cat, cow, dog), but the model has 4 classes")
    assert message.endswith("give all names in order")


def test_a_list_of_names_longer_than_a_path_can_be_is_a_list_of_names() -> None:
    names = [f"class number {number}" for number in range(500)]
    assert read_data((X, Y), classes=",".join(names)).class_names == tuple(names)
    assert "does not exist" in refusal("x" * 5000)


def test_a_list_of_class_names_is_never_taken_for_a_file_that_lies_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("cat,dog").write_text("dog\ncat\n")
    with pytest.raises(UsageError, match=r"a file here has that name; for it, type './cat,dog'"):
        read_class_names("cat,dog")
    assert read_class_names("./cat,dog") == read_class_names(Path("cat,dog")) == ("dog", "cat")


def test_class_names_come_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "classes.txt"
    path.write_text("dog\ncat\n\ncow, brown\n")
    data = read_data((X, ["cat", "dog", "cow, brown"] * 2), classes=path, n_classes=3)
    assert data.labels.tolist() == [1, 0, 2] * 2
    assert data.class_names == ("dog", "cat", "cow, brown")


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        ("cat,cat,dog", "'cat' is given twice"),
        ("nowhere.txt", "'nowhere.txt' is neither a file with class names nor"),
        ("cat,dog", "each of the model's 3 classes, got 2"),
        ("cat,,dog", "got an empty one"),
        ([], "got none"),
    ],
)
def test_bad_class_names_are_refused(classes: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_data((X, Y), classes=classes, n_classes=3)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 1, 2, 0, 1, 3], "row 5 has the label 3, expected class numbers from 0 to 2"),
        ([0, -1, 2, 0, 1, 2], "row 1 has the label -1"),
        ([0, 1, 2, 0.5, 1, 2], "row 3 has the label 0.5, expected a whole number or a class name"),
        ([0, np.nan, 2, 0, 1, 2], "row 1 has the label nan"),
        ([0, 1, 2], "got 6 inputs and 3 labels"),
        (["cat", "dgo", "cat", "cat", "cat", "cat"], "row 1 has the class 'dgo', .* did you mean 'dog'"),
        ([[0, 1], [1]], "the labels are ragged"),
        (np.ones((6, 3)), r"got labels of shape \(6, 3\)"),
        (np.array([None, 1, 2, 0, 1, 2], dtype=object), "expected labels that are numbers or names, got NoneType"),
        (np.zeros(6, dtype=complex), "got complex128"),
        (7, r"got labels of shape \(\)"),
    ],
)
def test_bad_labels_are_refused_in_one_sentence(labels: Any, message: str) -> None:
    words = isinstance(labels, list) and "cat" in labels
    assert re.search(message, refusal((X, labels), n_classes=3, classes="cat,dog,cow" if words else None))


def test_numbers_among_names_are_refused() -> None:
    assert "partly numbers ('3') and partly names" in refusal((X, ["a", "3", "b", "a", "a", "a"]), n_classes=3)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (np.zeros((0, 4)), "got 0 inputs and 6 labels"),
        ([[1, 2], [3]], "the inputs are ragged"),
        (np.array([[1], [1, 2], 3, 4, 5, 6], dtype=object), "ragged or Python objects"),
        (np.array(list("abcdef")), "the inputs are text: expected numbers; give texts as token ids"),
        (np.zeros(6, dtype=complex), "complex128"),
        (5, "got a single value"),
        ({}, "expected at least one input array, got none"),
        ({"a": X, "b": X[:5]}, "expected the same number of rows in every input, got 'a' 6, 'b' 5"),
        ({"ids": X, "mask": np.ones((6, 3))}, "input 'mask' has shape (6, 3), expected one entry per step of 'ids'"),
    ],
)
def test_bad_inputs_are_refused_in_one_sentence(inputs: Any, message: str) -> None:
    assert message in refusal((inputs, Y))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300])
def test_values_that_are_not_finite_are_refused_with_their_row(value: float) -> None:
    broken = X.astype(np.float64)
    broken[4, 1] = value
    assert refusal((broken, Y)) == "row 4 has NaN or infinite values, expected finite numbers"
    assert "row 4 of input 'a' has NaN" in refusal(({"a": broken}, Y))


def test_empty_data_is_refused() -> None:
    assert refusal((np.zeros((0, 4)), np.zeros(0))) == "the data has no inputs"


def test_missing_and_unknown_files_are_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path / "no.npz") == f"data '{tmp_path / 'no.npz'}' does not exist"
    (tmp_path / "data.xyz").write_text("")
    assert "known: .npz, .csv" in refusal(tmp_path / "data.xyz")
    np.save(tmp_path / "x.npy", X)
    assert "name the directory that holds x.npy and y.npy" in refusal(tmp_path / "x.npy")
    assert "has no array 'y' with the labels" in refusal(tmp_path)
    assert "cannot read data from 'builtins.int'" in refusal(5)
    with pytest.raises(UsageError, match="limit above 0"):
        read_data((X, Y), limit=0)


def test_npz_without_labels_or_with_wrong_lengths_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, x=X, label_ids=Y)
    assert "has no array 'y' with the labels; available: x, label_ids" in refusal(path)
    np.savez(path, y=Y)
    assert "has no array 'x' with the inputs" in refusal(path)
    np.savez(path, x=X, y=Y, mask=np.ones((5, 4)))
    assert "array 'mask' of" in refusal(path)
    np.savez(path, x=X, y=Y, group_a=np.ones((6, 2), int))
    assert "array 'group_a' of" in refusal(path)
    np.savez(path, x=X, y=Y, class_names=["a", "b"])
    assert "found 2 class names (a, b), but the model has 3 classes" in refusal(path, n_classes=3)


def test_npz_with_python_objects_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, x=np.array([{}, []], dtype=object), y=Y[:2])
    assert "'x.npy' holds Python objects, not arrays of numbers" in refusal(path)


def test_labels_of_pandas_are_refused_with_what_to_do_and_read_after_it(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    labels = np.array(["cat", "dog", "cat"], dtype=object)
    np.savez(path, x=X[:3], y=labels, allow_pickle=True)
    assert refusal(path).endswith(
        "'y.npy' holds Python objects, not arrays of numbers or text; save it "
        "with .astype(str), or .astype(float) if it holds numbers"
    )
    np.savez(path, x=X[:3], y=labels.astype(str))
    assert read_data(path).class_names == ("cat", "dog")


def test_broken_npz_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez_compressed(path, x=DIGITS, y=LABELS)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    messages = []
    for _ in range(60):
        broken = bytearray(whole)
        for position in rng.integers(0, len(whole), 5):
            broken[position] ^= int(rng.integers(1, 256))
        path.write_bytes(bytes(broken[: int(rng.integers(1, len(whole) + 1))]) if rng.random() < 0.5 else bytes(broken))
        try:
            read_data(path)
        except DataError as error:
            messages.append(str(error))
    assert len(messages) > 50
    assert not any("\n" in message for message in messages)
    path.write_bytes(b"")
    assert "is empty: it has no bytes" in refusal(path)


def test_npz_that_claims_or_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.npz"
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (10**12, 10)})
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", header.getvalue() + b"\0" * 64)
    assert "'x.npy' claims 40000000000000 bytes" in refusal(path)
    np.savez_compressed(path, x=np.zeros((1000, 1000)), y=np.zeros(1000))
    monkeypatch.setattr("os.sysconf", lambda name: 1000)
    assert "unpacks to 0.0 GiB, more than the 0.0 GiB of memory" in refusal(path)


def test_a_directory_that_cannot_be_listed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(path: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", forbidden)  # permissions do not bind every user who runs the tests
    assert refusal(tmp_path) == f"cannot read '{tmp_path}': Permission denied"
