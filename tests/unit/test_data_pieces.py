"""Data larger than it may be in memory is read by piece, and is the same data."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from arachne.data.labelled import LabelledData
from arachne.data.lazy import row_reader as pieces
from arachne.data.lazy.row_reader import FileRows
from arachne.data.lazy.source_spec import describe, open_description
from arachne.data.read import read_data
from arachne.data.readers.parquet import ParquetRows
from arachne.data.unlabelled import read_unlabelled
from arachne.errors import DataError
from arachne.model.lazy import LazyArray, as_array, is_lazy
from arachne.model.values import Array, take

N = 300
SCALED = "scale=1/255 layout=nchw"


def images() -> tuple[Array, Array]:
    """Small pictures `(n, 6, 6)` and their classes."""
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, (N, 6, 6), dtype=np.uint8), rng.integers(0, 3, N)


def npy_folder(folder: Path) -> Path:
    x, y = images()
    np.save(folder / "x.npy", x)
    np.save(folder / "y.npy", y)
    np.save(folder / "meta_where.npy", np.where(np.arange(N) % 2, "north", "south"))
    return folder


def stored_npz(folder: Path) -> Path:
    x, y = images()
    np.savez(folder / "data.npz", x=x, y=y, class_names=np.array(["a", "b", "c"]))
    return folder / "data.npz"


def pictures(folder: Path) -> Path:
    for row, (pixels, label) in enumerate(zip(*images(), strict=True)):
        (folder / f"class{label}").mkdir(exist_ok=True)
        Image.fromarray(pixels).save(folder / f"class{label}" / f"{row:04}.png")
    return folder


def table_of_paths(folder: Path) -> Path:
    pictures(folder)
    files = sorted(path.relative_to(folder) for path in folder.rglob("*.png"))
    lines = [f"{path},{path.parent},{number % 4}" for number, path in enumerate(files)]
    (folder / "table.csv").write_text("\n".join(["path,label,camera", *lines]), "utf-8")
    return folder / "table.csv"


def lists_in_parquet(folder: Path, name: str = "data.parquet", rows: slice = slice(None)) -> Path:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    x, y = images()
    columns = {"x": x[rows].reshape(-1, 36).tolist(), "label": y[rows], "group_half": np.arange(N)[rows] % 2}
    parquet.write_table(pyarrow.table(columns), folder / name, row_group_size=70)
    return folder / name


def columns_in_parquet(folder: Path) -> Path:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    x, y = images()
    columns = {f"c{number}": column for number, column in enumerate(x.reshape(N, -1).T[:5] / 7)}
    parquet.write_table(pyarrow.table({**columns, "y": y}), folder / "data.parquet", row_group_size=64)
    return folder / "data.parquet"


def several_parquet(folder: Path) -> Path:
    for number, start in enumerate(range(0, N, 128)):
        lists_in_parquet(folder, f"part-{number}.parquet", slice(start, start + 128))
    return folder / "*.parquet"


SOURCES: dict[str, tuple[Callable[[Path], Path], str]] = {
    "npy": (npy_folder, SCALED),
    "npy as it is": (npy_folder, ""),
    "npz": (stored_npz, SCALED),
    "pictures": (pictures, f"resize=5 {SCALED}"),
    "paths": (table_of_paths, SCALED),
    "lists": (lists_in_parquet, "scale=1/255 shape=1x6x6"),
    "columns": (columns_in_parquet, ""),
    "several": (several_parquet, "scale=1/255"),
}


@pytest.fixture(params=SOURCES)
def both(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[LabelledData, LabelledData]:
    """One source held in memory, and read by piece."""
    make, steps = SOURCES[request.param]
    path = make(tmp_path)
    return read_data(path, preprocess=steps), read_data(path, preprocess=steps, memory=1000)


def test_pieces_of_every_source_are_the_same_data(both: tuple[LabelledData, LabelledData]) -> None:
    held, by_piece = both
    assert not is_lazy(held.inputs)
    assert is_lazy(by_piece.inputs)
    assert np.array_equal(np.asarray(by_piece.inputs), np.asarray(held.inputs))
    assert np.asarray(by_piece.inputs).dtype == np.asarray(held.inputs).dtype
    assert np.array_equal(by_piece.labels, held.labels)
    assert (by_piece.class_names, by_piece.names) == (held.class_names, held.names)
    assert {name: column.tolist() for name, column in by_piece.columns.items()} == {
        name: column.tolist() for name, column in held.columns.items()
    }
    assert by_piece.sha256() == held.sha256()
    assert by_piece.hashes == held.hashes


def test_rows_come_in_the_order_asked_for(both: tuple[LabelledData, LabelledData]) -> None:
    held, by_piece = both
    rows = np.random.default_rng(1).integers(0, N, 90)
    there, here = by_piece.take(rows), held.take(rows)
    assert is_lazy(there.inputs)
    assert np.array_equal(np.asarray(there.inputs), np.asarray(here.inputs))
    assert np.array_equal(np.asarray(there.take([3, 0]).inputs), np.asarray(here.inputs)[[3, 0]])


def test_a_description_in_plain_values_opens_the_same_rows(both: tuple[LabelledData, LabelledData]) -> None:
    held, by_piece = both
    rows = np.array([7, 290, 31, 31])
    text = json.dumps(describe(take(by_piece.inputs, rows)))
    found = open_description(json.loads(text))
    assert is_lazy(found)
    assert np.array_equal(np.asarray(found), np.asarray(held.inputs)[rows])


def test_data_in_memory_has_no_description() -> None:
    with pytest.raises(DataError, match="cannot be opened elsewhere"):
        describe(np.zeros((3, 2)))
    grown = read_data((np.zeros((N, 9), np.uint8), np.zeros(N)), preprocess="scale=1/255", memory=N * 9)
    assert is_lazy(grown.inputs)
    with pytest.raises(DataError, match="cannot be opened elsewhere"):
        describe(grown.inputs)


def test_what_is_no_description_is_refused_in_one_sentence() -> None:
    wrong: list[dict[str, Any]] = [{"": {"name": "", "source": {"kind": "unknown"}}}, {"": {}}, {"": 3}]
    for values in wrong:
        with pytest.raises(DataError, match="cannot read a description of data"):
            open_description(values)


def test_several_inputs_are_read_by_piece(tmp_path: Path) -> None:
    np.save(tmp_path / "tokens.npy", np.arange(N * 8).reshape(N, 8))
    np.save(tmp_path / "lengths.npy", np.ones((N, 1), np.float64))
    np.save(tmp_path / "y.npy", np.zeros(N))
    found = read_data(tmp_path, memory=100)
    assert is_lazy(found.inputs)
    held = read_data(tmp_path)
    assert found.sha256() == held.sha256()


def test_files_of_other_shapes_or_columns_do_not_join(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros((4, 3)), y=np.zeros(4))
    np.savez(tmp_path / "b.npz", x=np.zeros((4, 2)), y=np.zeros(4))
    np.savez(tmp_path / "c.npz", x=np.zeros((4, 3)), y=np.zeros(4), meta_day=np.arange(4))
    np.savez(tmp_path / "d.npz", x=np.zeros((4, 3)), y=np.array(["k"] * 4))
    both = read_data([tmp_path / "a.npz", tmp_path / "a.npz"], limit=6)
    assert len(both) == 6
    assert len(read_data(f"{tmp_path / 'a.npz'},{tmp_path / 'a.npz'}")) == 8
    for other, reason in (("b", "have the shape"), ("c", "same metadata: day"), ("d", "numbers in some files")):
        with pytest.raises(DataError, match=reason):
            read_data([tmp_path / "a.npz", tmp_path / f"{other}.npz"])
    with pytest.raises(DataError, match="no file fits"):
        read_data(tmp_path / "*.parquet")


def test_a_folder_of_parquet_files_is_one_data_set_unless_it_holds_arrays(tmp_path: Path) -> None:
    several_parquet(tmp_path)
    found = read_data(tmp_path)
    assert np.asarray(found.inputs).shape == (N, 36)
    npy_folder(tmp_path)
    assert np.asarray(read_data(tmp_path).inputs).shape == (N, 6, 6)


def test_no_more_than_a_piece_is_read_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "MAX_READ_BYTES", 10 * 36)
    monkeypatch.setattr(pieces, "MAX_GAP_BYTES", 2 * 36)
    read: list[int] = []
    whole = FileRows._block

    def counting(self: FileRows, stream: object, first: int, n: int) -> Array:
        read.append(n)
        return whole(self, stream, first, n)  # type: ignore[arg-type]  # passed on as it came

    monkeypatch.setattr(FileRows, "_block", counting)
    data = read_data(npy_folder(tmp_path), memory=1000)
    rows = np.sort(np.random.default_rng(0).choice(N, 100, replace=False))
    x, _ = images()
    assert np.array_equal(np.asarray(take(data.inputs, rows)), x[rows])
    assert max(read) <= 10
    read.clear()
    assert np.array_equal(np.asarray(take(data.inputs, np.array([0, 299]))), x[[0, 299]])
    assert read == [1, 1]


def test_parquet_decodes_rows_in_order_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from arachne.data.readers import parquet

    monkeypatch.setattr(parquet, "DECODE_BATCH", 32)
    decoded: list[int] = []
    whole = ParquetRows._decode
    data = read_data(lists_in_parquet(tmp_path), memory=1000)

    def counting(self: ParquetRows, batch: object) -> object:
        decoded.append(len(batch))  # type: ignore[arg-type]  # pyarrow has no types
        return whole(self, batch)

    monkeypatch.setattr(ParquetRows, "_decode", counting)
    for start in range(0, N, 50):
        take(data.inputs, slice(start, start + 50))
        np.asarray(take(data.inputs, slice(start, start + 50)))
    assert sum(decoded) == N


@pytest.mark.parametrize("make", [npy_folder, stored_npz, lists_in_parquet])
def test_a_file_that_changes_during_the_run_is_refused(make: Callable[[Path], Path], tmp_path: Path) -> None:
    path = make(tmp_path)
    data = read_data(path, memory=1000)
    file = path / "x.npy" if path.is_dir() else path
    os.utime(file, ns=(1, 1))
    with pytest.raises(DataError, match="was changed while it was being read"):
        np.asarray(data.inputs)
    file.unlink()
    with pytest.raises(DataError, match="any more"):
        np.asarray(data.inputs)


def test_a_file_that_is_cut_off_during_the_run_is_refused(tmp_path: Path) -> None:
    data = read_data(npy_folder(tmp_path), memory=1000)
    with (tmp_path / "x.npy").open("r+b") as file:
        file.truncate(2000)
    with pytest.raises(DataError, match="was changed"):
        np.asarray(data.inputs)
    lazy = data.inputs
    assert isinstance(lazy, LazyArray)
    source = lazy.source
    assert isinstance(source, FileRows)
    short = FileRows(pieces.Stamp.of(tmp_path / "x.npy"), 128, (N, 6, 6), np.uint8)
    with pytest.raises(DataError, match="ends in row 52: it is cut off"):
        np.asarray(as_array(LazyArray(short)))


def test_a_picture_that_is_gone_or_changed_is_named(tmp_path: Path) -> None:
    data = read_data(pictures(tmp_path), memory=1000)
    np.asarray(data.inputs)
    assert data.names is not None
    os.utime(tmp_path / data.names[40], ns=(1, 1))
    with pytest.raises(DataError, match=f"picture '{data.names[40]}' was changed"):
        np.asarray(data.inputs)
    (tmp_path / data.names[40]).unlink()
    with pytest.raises(
        DataError, match=f"1 of 10 files cannot be read as pictures: {data.names[40]} \\(does not exist"
    ):
        np.asarray(take(data.inputs, slice(35, 45)))


def test_a_picture_of_another_kind_is_told_when_it_is_read(tmp_path: Path) -> None:
    folder = pictures(tmp_path)
    data = read_data(folder, memory=1000)
    assert data.names is not None
    Image.new("RGB", (6, 6)).save(folder / data.names[41])
    with pytest.raises(DataError, match="pictures are of different kinds"):
        np.asarray(take(data.inputs, slice(40, 43)))


def test_grey_pictures_among_coloured_ones_become_coloured_in_pieces_too(tmp_path: Path) -> None:
    folder = pictures(tmp_path)
    first = sorted((folder / "class0").iterdir())[0]
    Image.new("RGB", (6, 6), (10, 20, 30)).save(first)
    held, by_piece = read_data(folder), read_data(folder, memory=1000)
    assert np.array_equal(np.asarray(take(by_piece.inputs, slice(100, 120))), np.asarray(held.inputs)[100:120])


def test_a_compressed_npz_that_is_too_large_is_refused_with_what_to_do(tmp_path: Path) -> None:
    x, y = images()
    np.savez_compressed(tmp_path / "data.npz", x=x, y=y)
    with pytest.raises(DataError, match=r"is compressed and unpacks to .* write it with np.savez or np.save"):
        read_data(tmp_path / "data.npz", memory=5000)
    assert is_lazy(read_data(tmp_path / "data.npz", preprocess=SCALED, memory=12000).inputs)


def test_python_objects_are_refused_in_a_file_that_would_be_read_by_piece(tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", x=np.array([{}] * 900, dtype=object), y=np.zeros(900), allow_pickle=True)
    with pytest.raises(DataError, match="holds Python objects"):
        read_data(tmp_path / "data.npz", memory=100)


def test_a_damaged_npz_is_refused_before_it_is_read_by_piece(tmp_path: Path) -> None:
    path = stored_npz(tmp_path)
    content = bytearray(path.read_bytes())
    content[1000] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match="Bad CRC-32"):
        read_data(path, memory=1000)


def test_an_array_in_fortran_order_is_read_all_the_same(tmp_path: Path) -> None:
    x, y = images()
    np.save(tmp_path / "x.npy", np.asfortranarray(x))
    np.save(tmp_path / "y.npy", y)
    assert np.array_equal(np.asarray(read_data(tmp_path, memory=1000).inputs), x)


def test_values_that_are_not_finite_are_found_in_pieces(tmp_path: Path) -> None:
    x = np.zeros((N, 3))
    x[217, 1] = np.nan
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", np.zeros(N))
    with pytest.raises(DataError, match="row 217 has NaN"):
        read_data(tmp_path, memory=100)


def test_inputs_without_labels_are_read_by_piece(tmp_path: Path) -> None:
    held = read_unlabelled(npy_folder(tmp_path), preprocess=SCALED)
    by_piece = read_unlabelled(tmp_path, preprocess=SCALED, memory=1000)
    assert is_lazy(by_piece.inputs)
    assert by_piece.sha256() == held.sha256()
