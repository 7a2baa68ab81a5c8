"""Read tables such as a csv: of paths and labels, or of features and labels."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from arachne.data.preprocess import Preprocess
from arachne.data.readers.images import load_pictures, picture_names
from arachne.data.readers.raw import LABEL_NAMES, RawData, column_name, label_columns
from arachne.errors import DataError
from arachne.io.files import CHUNK
from arachne.io.npz import check_growth
from arachne.io.reading import ordinary_file, parse_errors_as
from arachne.model.lazy import MEMORY
from arachne.model.values import Array

PATH_COLUMN = "path"
FREE_UNPACKED_BYTES = 8 << 20
"""Bytes that a compressed table may always unpack to; its cells take some thirty times that."""

MAX_EVEN_CHARACTERS = 1 << 12
"""Characters that the texts of a column may always take when each has the room of the longest."""

Table = Mapping[str, Sequence[Any] | Array]


def read_csv(path: Path, preprocess: Preprocess, limit: int | None, memory: int) -> RawData:
    """Read labelled inputs from a csv."""
    return from_table(load_csv(path, limit), f"'{path}'", path.parent, preprocess, memory)


def load_csv(path: Path, limit: int | None) -> Table:
    """Load the columns of a csv with a header; commas, semicolons or tabs."""
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
    if "" in header:
        raise DataError(
            f"column {header.index('') + 1} of '{path}' has no name, as row numbers have that pandas writes; write the "
            "table with index=False, or name the column"
        )
    for row, cells in enumerate(lines[1:]):
        if len(cells) != len(header):
            raise DataError(f"row {row} of '{path}' has {len(cells)} cells, expected {len(header)} as in the header")
    rows = lines[1:] if limit is None else lines[1 : limit + 1]
    return {name: [cells[i] for cells in rows] for i, name in enumerate(header)}


def _content(path: Path) -> bytes:
    """Read the bytes of a table, unpacked within limits if its name ends in `.gz`."""
    ordinary_file(path, "data", DataError)
    with parse_errors_as(f"'{path}' as a table", DataError):
        if not path.name.lower().endswith(".gz"):
            return path.read_bytes()
        content = bytearray()
        with path.open("rb") as packed, gzip.GzipFile(fileobj=packed) as stream:
            while chunk := stream.read(CHUNK):
                content += chunk
                check_growth(path, packed.tell(), len(content), DataError, FREE_UNPACKED_BYTES)
        return bytes(content)


def from_table(table: Table, source: str, folder: Path, preprocess: Preprocess, memory: int = MEMORY) -> RawData:
    """Make labelled inputs of the columns of a table.

    With a column `path`, the inputs are those pictures and every further column is metadata; otherwise the inputs are
    the columns themselves, except those called `group_…` or `meta_…`, which are metadata. Labels are in a column
    `label` or `y`; several for each input in columns `label_NAME` or `y_NAME`.

    Args:
        table: Columns by name.
        source: The name of the table in messages.
        folder: The folder that paths are relative to.
        preprocess: The preprocessing, which brings pictures to one size.
        memory: The most bytes of pictures to hold; more are decoded when they are read.

    Raises:
        DataError: There is no label column, a column that is not numbers, or pictures that cannot be read.
    """
    labels, class_names, used = labels_of(table, source)
    if PATH_COLUMN in table:
        files = [_picture_path(folder, file, row) for row, file in enumerate(table[PATH_COLUMN])]
        head, rest = preprocess.split_images()
        return RawData(
            inputs=load_pictures(files, head, rest, folder, memory),
            labels=labels,
            class_names=class_names,
            names=picture_names(files, folder),
            columns={
                column_name(name) or name: as_column(table[name]) for name in table if name not in (*used, PATH_COLUMN)
            },
            preprocess=rest,
        )
    features = [name for name in table if name not in used and column_name(name) is None]
    if not features:
        raise DataError(f"{source} has no column 'path' and no columns of features beside '{used[0]}'")
    metadata = {column_name(name) or name: as_column(table[name]) for name in table if column_name(name)}
    inputs = as_features(table, features, source)
    named = tuple(features) if isinstance(inputs, np.ndarray) else None
    return RawData(inputs, labels, class_names, columns=metadata, preprocess=preprocess, value_names=named)


def labels_of(table: Table, source: str) -> tuple[Any, tuple[str, ...] | None, tuple[str, ...]]:
    """Return the labels of a table, their names if each has its own column, and the columns they were read from.

    Raises:
        DataError: There is no column of labels.
    """
    label = next((name for name in LABEL_NAMES if name in table), None)
    if label is not None:
        return as_labels(table[label]), None, (label,)
    several = label_columns(table)
    if not several:
        raise DataError(f"{source} has no column 'label' or 'y'; its columns: {', '.join(table) or 'none'}")
    columns = [np.asarray(["" if value is None else value for value in table[name]]) for name in several]
    return np.stack(columns, axis=1), tuple(several.values()), tuple(several)


def _picture_path(folder: Path, file: Any, row: int) -> Path:
    if not isinstance(file, str) or not file or "\0" in file:
        raise DataError(f"row {row} has no path of a picture")
    return folder / file


def as_labels(values: Sequence[Any] | Array) -> Any:
    """Convert a column of labels to numbers or names `(n,)`; refuse missing ones."""
    for row, value in enumerate(values):
        if value is None or (isinstance(value, str) and value == ""):
            raise DataError(f"row {row} has no label")
    with parse_errors_as("the labels", DataError):
        return np.asarray(values)


def as_column(values: Sequence[Any] | Array) -> Array:
    """Convert a metadata column to texts or numbers `(n,)`, with an empty text for a missing value."""
    if any(isinstance(value, (list, dict, bytes)) for value in values):
        raise DataError("a column of metadata holds lists, expected one text or number per row")
    plain = ["" if value is None else value for value in values]
    if any(isinstance(value, str) for value in plain):
        return _texts([str(value) for value in plain])
    column = np.asarray(plain)
    return column.astype(str) if column.dtype.kind == "O" else column


def _texts(values: list[str]) -> Array:
    """Make an array of texts; where one is much longer than the others, not all of them take its room."""
    longest, characters = max(map(len, values)), sum(map(len, values))
    if longest * len(values) <= max(MAX_EVEN_CHARACTERS, 2 * characters):
        return np.asarray(values)
    return np.array(values, dtype=np.dtypes.StringDType())


def as_features(table: Table, names: Sequence[str], source: str) -> Array | dict[str, Any]:
    """Make one array of columns of numbers, or an array of each column of lists."""
    lists = [name for name in names if _has_lists(table[name])]
    if lists:
        if len(lists) < len(names):
            other = next(name for name in names if name not in lists)
            raise DataError(
                f"{source} has columns of lists and of single values; call '{other}' 'meta_{other}' instead"
            )
        even = {name: np.asarray(_check_even(table[name], name)) for name in lists}
        return even if len(lists) > 1 else even[lists[0]]
    return np.stack([_numbers(table[name], name, source) for name in names], axis=1)


def _has_lists(values: Sequence[Any] | Array) -> bool:
    if isinstance(values, np.ndarray) and values.dtype.kind in "biuf":
        return values.ndim > 1
    return any(isinstance(value, (list, np.ndarray)) for value in values)


def _check_even(values: Sequence[Any] | Array, name: str) -> Sequence[Any] | Array:
    if isinstance(values, np.ndarray) and values.dtype.kind in "biuf":
        return values
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
        if values[row] in (None, ""):
            raise DataError(
                f"column '{name}' of {source} has no value in row {row}; fill it as in training, or leave the row out"
            ) from None
        advice = f"call it 'meta_{name}' to keep it as metadata"
        if len(str(values[row]).split()) > 1:
            advice = f"a model takes text as token ids: tokenise it into an npz, with the text itself as 'meta_{name}'"
        raise DataError(
            f"column '{name}' of {source} has '{values[row]}' in row {row}, expected a number; {advice}"
        ) from None


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (ValueError, TypeError, OverflowError):
        return False
    return True
