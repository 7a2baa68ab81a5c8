from __future__ import annotations

import gzip
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from arachne.data.read import read_data
from arachne.errors import DataError, EnvironmentFaultError

parquet = pytest.importorskip("pyarrow.parquet")
pyarrow = pytest.importorskip("pyarrow")


def pictures(folder: Path, n: int = 3) -> None:
    for number in range(n):
        Image.fromarray(np.full((4, 4), number * 10, np.uint8)).save(folder / f"{number}.png")


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8", newline="")
    return path


def refusal(path: Path) -> str:
    with pytest.raises(DataError) as caught:
        read_data(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_csv_of_paths_keeps_further_columns_as_metadata(tmp_path: Path) -> None:
    pictures(tmp_path)
    path = write(tmp_path / "v.csv", "path,label,sex,group_age\n2.png,dog,f,30\n0.png,cat,m,40\n1.png,cat,f,50\n")
    data = read_data(path, n_classes=2)
    assert (data.labels.tolist(), data.class_names) == ([1, 0, 0], ("cat", "dog"))
    assert data.names == ("2.png", "0.png", "1.png")
    assert np.asarray(data.inputs)[:, 0, 0, 0].tolist() == [20, 0, 10]
    assert {name: column.tolist() for name, column in data.columns.items()} == {
        "sex": ["f", "m", "f"],
        "age": ["30", "40", "50"],
    }
    assert len(read_data(path, n_classes=2, limit=3)) == 3
    assert read_data(path, n_classes=2, preprocess="resize=2 scale=1/10").inputs.shape == (3, 2, 2, 1)  # type: ignore[union-attr]  # one array


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_csv_of_features_is_one_row_per_input(tmp_path: Path, delimiter: str) -> None:
    digits, labels = load_digits(return_X_y=True)
    lines = [delimiter.join([*(f"p{i}" for i in range(64)), "meta_row", "y"])]
    lines += [delimiter.join(map(str, [*digits[row], row, labels[row]])) for row in range(50)]
    data = read_data(write(tmp_path / "d.csv", "\ufeff" + "\r\n".join(lines)))
    assert np.array_equal(data.inputs, digits[:50])  # type: ignore[arg-type]  # one array
    assert data.inputs.dtype == np.float32  # type: ignore[union-attr]  # one array
    assert data.labels.tolist() == labels[:50].tolist()
    assert data.columns["row"].tolist() == [str(row) for row in range(50)]


def test_compressed_csv_is_read(tmp_path: Path) -> None:
    path = tmp_path / "d.csv.gz"
    path.write_bytes(gzip.compress(b"a,label\n1,0\n2,1\n"))
    assert np.asarray(read_data(path).inputs).tolist() == [[1], [2]]
    path.write_bytes(path.read_bytes()[:10])
    assert "cannot read" in refusal(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("a,label\n", "has no rows"),
        ("a,b\n1,2\n", "has no column 'label' or 'y'; its columns: a, b"),
        ("label\n1\n", "no column 'path' and no columns of features beside 'label'"),
        ("a,label\n1,0\n2\n", "row 1 of .* has 1 cells, expected 2"),
        ("a,label\n1,0\nx,1\n", "column 'a' of .* has 'x' in row 1, expected a number; call it 'meta_a'"),
        ("a,label\n1,0\n,1\n", "column 'a' of .* has no value in row 1"),
        ("a,label\nis it late,0\n", "'is it late' in row 0, expected a number; a model takes text as token ids"),
        ("a,label\n1,0\nnan,1\n", "row 1 has NaN or infinite values"),
        ("a,label\n1,0\n2,\n", "row 1 has no label"),
        ("a,label\n1,0\n2,1.5\n", "partly|row 1 has the label"),
        ("a,a,label\n1,1,0\n", "two columns of the same name"),
        ('a,label\n"1,0\n', "cannot read .* as a table"),
        ("path,label\nno.png,0\nneither.png,1\n", "2 of 2 files .*: no.png .does not exist., neither.png"),
    ],
)
def test_bad_tables_are_refused_in_one_sentence(tmp_path: Path, text: str, message: str) -> None:
    assert re.search(message, refusal(write(tmp_path / "v.csv", text)))


def test_table_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "v.csv").write_bytes(b"\xff\xfe\x00a,label")
    assert "as a table in UTF-8" in refusal(tmp_path / "v.csv")


def test_parquet_of_features_paths_and_lists(tmp_path: Path) -> None:
    pictures(tmp_path)
    path = tmp_path / "v.parquet"
    table = {"a": [1.0, 2.0], "b": [3, 4], "label": ["cat", "dog"], "meta_sex": ["f", None]}
    parquet.write_table(pyarrow.table(table), path)
    data = read_data(path, n_classes=2)
    assert np.asarray(data.inputs).tolist() == [[1, 3], [2, 4]]
    assert data.columns["sex"].tolist() == ["f", ""]
    parquet.write_table(pyarrow.table({"path": ["1.png", "2.png"], "label": [0, 1], "age": [3, 4]}), path)
    data = read_data(path)
    assert np.asarray(data.inputs)[:, 0, 0, 0].tolist() == [10, 20]
    assert data.columns["age"].tolist() == [3, 4]
    ids = {"ids": [[1, 2], [3, 4]], "mask": [[1, 1], [1, 0]], "label": [0, 1]}
    parquet.write_table(pyarrow.table(ids), path)
    data = read_data(path, limit=1)
    assert isinstance(data.inputs, dict)
    assert data.inputs["ids"].tolist() == [[1, 2]]


def test_bad_parquet_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "v.parquet"
    path.write_bytes(b"PAR1 and then nothing")
    assert "as parquet" in refusal(path)
    parquet.write_table(pyarrow.table({"ids": [[1, 2], [3]], "label": [0, 1]}), path)
    assert "column 'ids' is ragged: its lists have 1 to 2 entries" in refusal(path)
    parquet.write_table(pyarrow.table({"ids": [[1, 2], [3, 4]], "n": [2, 2], "label": [0, 1]}), path)
    assert "columns of lists and of single values; call 'n' 'meta_n' instead" in refusal(path)
    parquet.write_table(pyarrow.table({"a": pyarrow.array([], pyarrow.float32()), "label": []}), path)
    assert "has no rows" in refusal(path)


def test_parquet_without_pyarrow_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "v.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(EnvironmentFaultError, match=r'pip install "arachne-repair\[parquet\]"'):
        read_data(tmp_path / "v.parquet")
