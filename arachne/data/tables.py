"""csv and parquet: a table of paths and labels, or of features and labels."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from arachne.data.found import LABEL_NAMES, Found, column_name
from arachne.data.images import read_images
from arachne.data.preprocess import Preprocess
from arachne.errors import DataError, EnvironmentFaultError
from arachne.values import Array

PATH = "path"
Table = Mapping[str, Sequence[Any] | Array]


def read_csv(path: Path, preprocess: Preprocess, limit: int | None) -> Found:
    """Labelled inputs from a csv."""
    return from_table(load_csv(path, limit), f"'{path}'", path.parent, preprocess)


def load_csv(path: Path, limit: int | None) -> Table:
    """The columns of a csv with a header; commas, semicolons or tabs."""
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        text = raw.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError, EOFError, gzip.BadGzipFile) as error:
        raise DataError(f"cannot read '{path}' as a table in UTF-8: {error}") from error
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


def read_parquet(path: Path, preprocess: Preprocess, limit: int | None) -> Found:
    """Labelled inputs from a parquet file; columns of lists become inputs of their own."""
    return from_table(load_parquet(path, limit), f"'{path}'", path.parent, preprocess)


def load_parquet(path: Path, limit: int | None) -> Table:
    """The columns of a parquet file."""
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as error:
        raise EnvironmentFaultError(
            'reading parquet needs a package that is not installed (pyarrow): pip install "arachne-repair[parquet]"'
        ) from error
    try:
        table = parquet.read_table(path)
    except (OSError, ArrowException) as error:
        raise DataError(f"cannot read '{path}' as parquet: {str(error).splitlines()[0]}") from error
    if not table.num_rows:
        raise DataError(f"'{path}' has no rows")
    table = table if limit is None else table.slice(0, limit)
    return {name: table.column(name).to_pylist() for name in table.column_names}


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
        files = [folder / str(file) for file in table[PATH]]
        head, rest = preprocess.split_images()
        return Found(
            inputs=read_images(files, head, folder),
            labels=_labels(table[label]),
            names=tuple(str(file) for file in table[PATH]),
            columns={column_name(name) or name: as_column(table[name]) for name in table if name not in (label, PATH)},
            preprocess=rest,
        )
    features = [name for name in table if name != label and column_name(name) is None]
    if not features:
        raise DataError(f"{source} has no column 'path' and no columns of features beside '{label}'")
    metadata = {column_name(name) or name: as_column(table[name]) for name in table if column_name(name)}
    return Found(_features(table, features, source), _labels(table[label]), columns=metadata, preprocess=preprocess)


def _labels(values: Sequence[Any] | Array) -> Any:
    missing = [row for row, value in enumerate(values) if value is None or value == ""]
    if missing:
        raise DataError(f"row {missing[0]} has no label")
    return np.asarray(values)


def as_column(values: Sequence[Any] | Array) -> Array:
    """A metadata column: texts or numbers `(n,)`, an empty text where there is none."""
    column = np.asarray(["" if value is None else value for value in values])
    return column.astype(str) if column.dtype.kind == "O" else column


def _features(table: Table, names: Sequence[str], source: str) -> Array | dict[str, Any]:
    lists = [name for name in names if isinstance(table[name][0], (list, np.ndarray))]
    if lists:
        if len(lists) < len(names):
            other = next(name for name in names if name not in lists)
            raise DataError(
                f"{source} has columns of lists and of single values; call '{other}' 'meta_{other}' instead"
            )
        return {name: table[name] for name in lists} if len(lists) > 1 else np.asarray(_even(table[lists[0]], lists[0]))
    return np.stack([_numbers(table[name], name, source) for name in names], axis=1)


def _even(values: Sequence[Any] | Array, name: str) -> Sequence[Any] | Array:
    lengths = {len(value) for value in values}
    if len(lengths) > 1:
        raise DataError(f"column '{name}' is ragged: its lists have {min(lengths)} to {max(lengths)} entries")
    return values


def _numbers(values: Sequence[Any] | Array, name: str, source: str) -> Array:
    try:
        return np.asarray(values, dtype=np.float64)
    except (ValueError, TypeError):
        row = next(row for row, value in enumerate(values) if not _is_number(value))
        raise DataError(
            f"column '{name}' of {source} has '{'' if values[row] is None else values[row]}' in row {row}, "
            f"expected a number; call it 'meta_{name}' to keep it as metadata"
        ) from None


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (ValueError, TypeError):
        return False
    return True
