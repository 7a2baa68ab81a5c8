"""Columns of texts take the room of their texts: one long text does not make the others as long."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np

from arachne.causes.metadata import MetadataFinder
from arachne.data.read import read_data
from arachne.data.readers.tables import as_column

COLUMNS, TABLE_ROWS, LONG_TEXT = 500, 200, 2000


def test_texts_of_one_length_are_an_array_as_ever_and_one_long_text_takes_its_own_room() -> None:
    assert as_column(["a", "bc", None]).dtype == np.dtype("<U2")
    assert as_column([1, 2, 3]).dtype.kind == "i"
    assert as_column(["a", 1.5, None]).tolist() == ["a", "1.5", ""]
    column = as_column(["x" * LONG_TEXT, *["a"] * TABLE_ROWS])
    assert column.nbytes < 20 * TABLE_ROWS
    assert column.tolist() == ["x" * LONG_TEXT, *["a"] * TABLE_ROWS]
    assert column[np.array([1, 0])].tolist() == ["a", "x" * LONG_TEXT]
    assert len(np.unique(column)) == 2


def test_many_columns_of_texts_take_about_as_much_as_their_file(tmp_path: Path) -> None:
    names = [f"meta_{number}" for number in range(COLUMNS)]
    lines = [",".join(["y", "a", *names]), ",".join(["0", "1.5", *["x" * LONG_TEXT] * COLUMNS])]
    lines += [",".join([str(row % 2), "1.5", *["b"] * COLUMNS]) for row in range(TABLE_ROWS)]
    (tmp_path / "wide.csv").write_text("\n".join(lines))
    tracemalloc.start()
    data = read_data(tmp_path / "wide.csv")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(data.columns) == COLUMNS
    assert peak < 40 << 20  # 800 MB where every text has the room of the longest; the file has 1.2


def test_pairs_are_those_of_the_first_columns_alone() -> None:
    assert MetadataFinder().paired == 100
