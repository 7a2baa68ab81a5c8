"""csv and parquet: a table of paths and labels, or of features and labels."""

from __future__ import annotations

import csv
import gzip
import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from arachne.data.found import LABEL_NAMES, Found, column_name
from arachne.data.images import picture_names, read_images
from arachne.data.preprocess import Preprocess
from arachne.errors import DataError, EnvironmentFaultError
from arachne.files import CHUNK
from arachne.npz import check_growth
from arachne.reading import foreign, ordinary_file
from arachne.values import Array

PATH = "path"
ROOM = 8 << 20
"""Bytes a packed table may always unpack to; its cells take some thirty times that."""

PLAIN = frozenset(
    [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
    + ["halffloat", "float", "double", "bool", "string", "large_string", "string_view", "null"]
)
"""The kinds of values of a parquet column that are understood, also as lists; `null` is a column without any."""

Table = Mapping[str, Sequence[Any] | Array]


def read_csv(path: Path, preprocess: Preprocess, limit: int | None) -> Found:
    """Labelled inputs from a csv."""
    return from_table(load_csv(path, limit), f"'{path}'", path.parent, preprocess)


def load_csv(path: Path, limit: int | None) -> Table:
    """The columns of a csv with a header; commas, semicolons or tabs."""
    try:
        text = _content(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"cannot read '{path}' as a table in UTF-8: {error}") from error
    if "\0" in text:
        raise DataError(f"cannot read '{path}' as a table: it holds zero bytes, so it is no text")
    first = text.partition("\n")[0]
    delimiter = max(",;\t", key=first.count)
    try:
        lines = [
            cells for cells in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True) if cells
        ]
    except csv.Error as error:
        raise DataError(f"cannot read '{path}' as a table: {error}") from error
    if len(lines) < 2:
        raise DataError(f"'{path}' has no rows" if lines else f"'{path}' is empty")
    header = [cell.strip() for cell in lines[0]]
    if len(set(header)) < len(header):
        raise DataError(f"'{path}' has two columns of the same name")
    for row, cells in enumerate(lines[1:]):
        if len(cells) != len(header):
            raise DataError(f"row {row} of '{path}' has {len(cells)} cells, expected {len(header)} as in the header")
    rows = lines[1:] if limit is None else lines[1 : limit + 1]
    return {name: [cells[i] for cells in rows] for i, name in enumerate(header)}


def _content(path: Path) -> bytes:
    """The bytes of a table, unpacked where its name says that it is packed, but not beyond all measure."""
    ordinary_file(path, "data", DataError)
    with foreign(f"'{path}' as a table", DataError):
        if not path.name.lower().endswith(".gz"):
            return path.read_bytes()
        content = bytearray()
        with path.open("rb") as packed, gzip.GzipFile(fileobj=packed) as stream:
            while chunk := stream.read(CHUNK):
                content += chunk
                check_growth(path, packed.tell(), len(content), DataError, ROOM)
        return bytes(content)


def read_parquet(path: Path, preprocess: Preprocess, limit: int | None) -> Found:
    """Labelled inputs from a parquet file; columns of lists become inputs of their own."""
    return from_table(load_parquet(path, limit), f"'{path}'", path.parent, preprocess)


def load_parquet(path: Path, limit: int | None) -> Table:
    """The columns of a parquet file."""
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise EnvironmentFaultError(
            'reading parquet needs a package that is not installed (pyarrow): pip install "arachne-repair[parquet]"'
        ) from error
    ordinary_file(path, "data", DataError)
    with foreign(f"'{path}' as parquet", DataError), parquet.ParquetFile(path) as file:
        claimed = sum(
            file.metadata.row_group(n).column(m).total_uncompressed_size
            for n in range(file.metadata.num_row_groups)
            for m in range(file.metadata.num_columns)
        )
        check_growth(
            path, path.stat().st_size, max(claimed, file.metadata.num_rows * file.metadata.num_columns), DataError
        )
        table = file.read()
        if not table.num_rows:
            raise DataError(f"'{path}' has no rows")
        table = table if limit is None else table.slice(0, limit)
        if len(set(table.column_names)) < len(table.column_names):
            raise DataError(f"'{path}' has two columns of the same name")
        return {name: _column(table.column(name), name) for name in table.column_names}


def _column(values: Any, name: str) -> list[Any]:
    """A column as Python's numbers, texts and lists of numbers."""
    kind = str(values.type)
    plain = re.sub(r"^(large_|fixed_size_)?list<\w+: (\w+)( not null)?>(\[\d+\])?$", r"\2", kind)
    if plain not in PLAIN:
        raise DataError(
            f"column '{name}' holds values of the kind '{kind}', expected numbers, text or lists of numbers"
        )
    return values.to_pylist()  # type: ignore[no-any-return]  # pyarrow has no types


def from_table(table: Table, source: str, folder: Path, preprocess: Preprocess) -> Found:
    """Labelled inputs from the columns of a table.

    With a column `path`, the inputs are those pictures and every further column
    is metadata; otherwise the inputs are the columns themselves, and metadata is what is called `group_…` or `meta_…`.

    Args:
        table: Columns by name.
        source: What to call it in messages.
        folder: What paths are relative to.
        preprocess: For pictures: brings them to one size.

    Raises:
        DataError: No label column, a column that is not numbers, or pictures that cannot be read.
    """
    label = next((name for name in LABEL_NAMES if name in table), None)
    if label is None:
        raise DataError(f"{source} has no column 'label' or 'y'; its columns: {', '.join(table) or 'none'}")
    if PATH in table:
        files = [_picture_path(folder, file, row) for row, file in enumerate(table[PATH])]
        head, rest = preprocess.split_images()
        return Found(
            inputs=read_images(files, head, folder),
            labels=_labels(table[label]),
            names=picture_names(files, folder),
            columns={column_name(name) or name: as_column(table[name]) for name in table if name not in (label, PATH)},
            preprocess=rest,
        )
    features = [name for name in table if name != label and column_name(name) is None]
    if not features:
        raise DataError(f"{source} has no column 'path' and no columns of features beside '{label}'")
    metadata = {column_name(name) or name: as_column(table[name]) for name in table if column_name(name)}
    return Found(_features(table, features, source), _labels(table[label]), columns=metadata, preprocess=preprocess)


def _picture_path(folder: Path, file: Any, row: int) -> Path:
    if not isinstance(file, str) or not file or "\0" in file:
        raise DataError(f"row {row} has no path of a picture")
    return folder / file


def _labels(values: Sequence[Any] | Array) -> Any:
    for row, value in enumerate(values):
        if value is None or (isinstance(value, str) and value == ""):
            raise DataError(f"row {row} has no label")
    with foreign("the labels", DataError):
        return np.asarray(values)


def as_column(values: Sequence[Any] | Array) -> Array:
    """A metadata column: texts or numbers `(n,)`, an empty text where there is none."""
    if any(isinstance(value, (list, dict, bytes)) for value in values):
        raise DataError("a column of metadata holds lists, expected one text or number per row")
    column = np.asarray(["" if value is None else value for value in values])
    return column.astype(str) if column.dtype.kind == "O" else column


def _features(table: Table, names: Sequence[str], source: str) -> Array | dict[str, Any]:
    lists = [name for name in names if any(isinstance(value, (list, np.ndarray)) for value in table[name])]
    if lists:
        if len(lists) < len(names):
            other = next(name for name in names if name not in lists)
            raise DataError(
                f"{source} has columns of lists and of single values; call '{other}' 'meta_{other}' instead"
            )
        even = {name: np.asarray(_even(table[name], name)) for name in lists}
        return even if len(lists) > 1 else even[lists[0]]
    return np.stack([_numbers(table[name], name, source) for name in names], axis=1)


def _even(values: Sequence[Any] | Array, name: str) -> Sequence[Any] | Array:
    for row, value in enumerate(values):
        if not isinstance(value, (list, np.ndarray)) or any(entry is None for entry in value):
            raise DataError(f"row {row} has no list of numbers in column '{name}'")
    lengths = {len(value) for value in values}
    if len(lengths) > 1:
        raise DataError(f"column '{name}' is ragged: its lists have {min(lengths)} to {max(lengths)} entries")
    return values


def _numbers(values: Sequence[Any] | Array, name: str, source: str) -> Array:
    try:
        return np.asarray(values, dtype=np.float64)
    except (ValueError, TypeError, OverflowError):
        row = next(row for row, value in enumerate(values) if not _is_number(value))
        raise DataError(
            f"column '{name}' of {source} has '{'' if values[row] is None else values[row]}' in row {row}, "
            f"expected a number; call it 'meta_{name}' to keep it as metadata"
        ) from None


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (ValueError, TypeError, OverflowError):
        return False
    return True
