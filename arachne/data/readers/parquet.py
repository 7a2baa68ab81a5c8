"""Read parquet files: tables of paths or features and labels. Large features are read batch by batch."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from arachne.data.lazy.fit_memory import exceeds_memory
from arachne.data.lazy.row_reader import Stamp
from arachne.data.preprocess import Preprocess
from arachne.data.readers.raw import LABEL_NAMES, RawData, column_name
from arachne.data.readers.tables import PATH_COLUMN, Table, as_column, as_features, as_labels, from_table
from arachne.errors import DataError, EnvironmentFaultError
from arachne.io.npz import ALWAYS_ALLOWED_BYTES, check_growth
from arachne.io.reading import ordinary_file, parse_errors_as
from arachne.model.lazy import LazyArray, Source, as_array
from arachne.model.values import Array, Inputs

KNOWN_TYPES = frozenset(
    [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
    + ["halffloat", "float", "double", "bool", "string", "large_string", "string_view", "null"]
)
"""The types of parquet columns that can be read, also as lists; `null` is a column without values."""

DECODE_BATCH = 1024
"""Rows decoded at a time."""

BYTES_PER_NUMBER = 4
"""The fewest bytes of a number as an input."""

TYPE_SAMPLE_ROWS = 8
"""Rows read to learn the types of the features."""

MAX_LABEL_BYTES = 10_000
"""Bytes that labels which are texts may have on average."""


def read_parquet(path: Path, preprocess: Preprocess, limit: int | None, memory: int) -> RawData:
    """Read labelled inputs from a parquet file; columns of lists become inputs of their own.

    Args:
        path: The file.
        preprocess: The preprocessing of the inputs.
        limit: Read at most this many rows.
        memory: The most bytes of features to hold; more are read batch by batch.
    """
    with open_parquet(path) as file:
        names, n = file.schema_arrow.names, _count_rows(file, path, limit)
        label = next((name for name in LABEL_NAMES if name in names), None)
        if label is not None and PATH_COLUMN not in names and n > TYPE_SAMPLE_ROWS:
            few = next(file.iter_batches(batch_size=TYPE_SAMPLE_ROWS))
            found = from_table(_table(few), f"'{path}'", path.parent, preprocess)
            if exceeds_memory(_first_row(found.inputs), n, preprocess, memory):
                features = [name for name in names if name != label and column_name(name) is None]
                rest = _table(file.read(columns=[name for name in names if name not in features]).slice(0, n))
                return RawData(
                    inputs=lazy_features(path, features, n),
                    labels=as_labels(rest[label]),
                    columns={column_name(name) or name: as_column(rest[name]) for name in rest if name != label},
                    preprocess=preprocess,
                    value_names=found.value_names,
                )
    return from_table(load_parquet(path, limit), f"'{path}'", path.parent, preprocess, memory)


def load_parquet(path: Path, limit: int | None) -> Table:
    """Load the columns of a parquet file."""
    with open_parquet(path) as file:
        _count_rows(file, path, limit, held=True)
        table = file.read()
        return _table(table if limit is None else table.slice(0, limit))


def lazy_features(path: Path, names: Sequence[str], n: int) -> Inputs:
    """Make lazy inputs of columns of a parquet file."""
    source = ParquetRows(Stamp.of(path), names, np.arange(n))
    arrays = {name: as_array(LazyArray(source, name)) for name in source.kinds}
    return arrays[""] if list(arrays) == [""] else arrays


class ParquetRows(Source):
    """Columns of a parquet file, decoded batch by batch from the start of a row group.

    Rows that are read in ascending order, as most are, are decoded once.

    Args:
        stamp: The file.
        names: The columns.
        rows: The rows of the file to use.
    """

    def __init__(self, stamp: Stamp, names: Sequence[str], rows: Array) -> None:
        self._stamp, self._names, self._rows = stamp, list(names), rows
        self.n = len(rows)
        with open_parquet(stamp.path) as file:
            groups = [file.metadata.row_group(number).num_rows for number in range(file.metadata.num_row_groups)]
            few = next(file.iter_batches(batch_size=TYPE_SAMPLE_ROWS, columns=self._names))
        self._starts = np.cumsum([0, *groups])
        self.kinds = {name: (array.shape[1:], array.dtype) for name, array in self._decode(few).items()}
        self._batches: Iterator[Any] = iter(())
        self._group = -1
        self._at = 0
        self._batch: Mapping[str, Array] = {}
        self._last: tuple[bytes, Mapping[str, Array]] | None = None

    def read(self, name: str, rows: Array) -> Array:
        key = rows.tobytes()
        if self._last is None or self._last[0] != key:
            self._last = key, self._all(self._rows[rows])
        return self._last[1][name]

    def describe(self, rows: Array) -> dict[str, Any]:
        numbers = self._rows[rows].tolist()
        return {"kind": "parquet", "file": self._stamp.to_json(), "columns": self._names, "rows": numbers}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> ParquetRows:
        """Open rows from the result of `describe`."""
        return cls(Stamp.from_json(values["file"]), values["columns"], np.asarray(values["rows"], np.int64))

    def _all(self, rows: Array) -> Mapping[str, Array]:
        self._stamp.check()
        found = {name: np.empty((len(rows), *shape), dtype) for name, (shape, dtype) in self.kinds.items()}
        order = np.argsort(rows, kind="stable")
        ascending, done = rows[order], 0
        with parse_errors_as(f"'{self._stamp.path}' as parquet", DataError):
            while done < len(rows):
                self._move_to(int(ascending[done]))
                end = self._at + _length(self._batch)
                stop = int(np.searchsorted(ascending, end))
                for name, array in found.items():
                    array[order[done:stop]] = self._batch[name][ascending[done:stop] - self._at]
                done = stop
        return found

    def _move_to(self, row: int) -> None:
        """Decode up to the batch that holds a row, again from the start of its row group if that batch has passed."""
        group = int(np.searchsorted(self._starts, row, side="right")) - 1
        if group != self._group or row < self._at:
            self._batches, self._group = self._from(group), group
            self._at, self._batch = int(self._starts[group]), {}
        while row >= self._at + _length(self._batch):
            self._at += _length(self._batch)
            self._batch = self._decode(next(self._batches))

    def _from(self, group: int) -> Iterator[Any]:
        with open_parquet(self._stamp.path) as file:
            yield from file.iter_batches(
                batch_size=DECODE_BATCH, row_groups=[group], columns=self._names, use_threads=False
            )

    def _decode(self, batch: Any) -> Mapping[str, Array]:
        """Decode a batch to arrays, as `as_features` does with a whole table."""
        found = as_features({name: _values(batch, name) for name in self._names}, self._names, f"'{self._stamp.path}'")
        arrays = found if isinstance(found, dict) else {"": found}
        if hasattr(self, "kinds") and any(a.shape[1:] != self.kinds[name][0] for name, a in arrays.items()):
            raise DataError(
                f"'{self._stamp.path}' is ragged: its lists have other lengths than those of the first rows"
            )
        return arrays


@contextmanager
def open_parquet(path: Path) -> Iterator[Any]:
    """Open a parquet file; any error while it is open becomes a `DataError` of one sentence."""
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise EnvironmentFaultError(
            'reading parquet needs a package that is not installed (pyarrow): pip install "arachne-repair[parquet]"'
        ) from error
    ordinary_file(path, "data", DataError)
    with parse_errors_as(f"'{path}' as parquet", DataError), parquet.ParquetFile(path) as file:
        yield file


def _count_rows(file: Any, path: Path, limit: int | None, *, held: bool = False) -> int:
    """Return how many rows to read, after checking the sizes that the file claims."""
    data = file.metadata
    chunks = [data.row_group(n).column(m) for n in range(data.num_row_groups) for m in range(data.num_columns)]
    # With dictionary encoding, a chunk of few bytes can hold many values.
    claimed = sum(max(chunk.total_uncompressed_size, _unpacked_size(chunk)) for chunk in chunks)
    check_growth(path, path.stat().st_size, claimed, DataError, held=held)
    _check_labels(path, chunks)
    _check_texts(path, chunks, claimed, held=held)
    if not data.num_rows:
        raise DataError(f"'{path}' has no rows")
    if len(set(file.schema_arrow.names)) < len(file.schema_arrow.names):
        raise DataError(f"'{path}' has two columns of the same name")
    return int(data.num_rows if limit is None else min(data.num_rows, limit))


def _check_labels(path: Path, chunks: Sequence[Any]) -> None:
    """Refuse labels that are no names of classes: texts of this size, one for each row, would take gigabytes."""
    for chunk in chunks:
        if chunk.physical_type == "BYTE_ARRAY" and chunk.path_in_schema in LABEL_NAMES:
            mean = chunk.total_uncompressed_size // max(1, chunk.num_values)
            if mean > MAX_LABEL_BYTES:
                raise DataError(
                    f"the column '{chunk.path_in_schema}' of '{path}' holds texts of {mean:,} bytes on average, "
                    f"expected names of classes, at most {MAX_LABEL_BYTES:,} bytes long"
                )


def _unpacked_size(chunk: Any) -> int:
    """Return the fewest bytes of the values of a column chunk as numbers; `_check_texts` counts texts."""
    return int(chunk.num_values) * (1 if chunk.physical_type == "BYTE_ARRAY" else BYTES_PER_NUMBER)


def _check_texts(path: Path, chunks: Sequence[Any], claimed: int, *, held: bool) -> None:
    """Refuse a file whose dictionary-encoded texts unpack out of proportion, without unpacking them."""
    from pyarrow import compute, parquet, types

    texts = [chunk for chunk in chunks if chunk.physical_type == "BYTE_ARRAY"]
    names = sorted(
        {one.path_in_schema for one in texts if one.num_values * one.total_uncompressed_size > ALWAYS_ALLOWED_BYTES}
    )
    size = path.stat().st_size
    with parse_errors_as(f"'{path}' as parquet", DataError), parquet.ParquetFile(path, read_dictionary=names) as file:
        for batch in file.iter_batches(batch_size=DECODE_BATCH, columns=names) if names else ():
            for column in batch.columns:
                if types.is_dictionary(column.type):
                    lengths = compute.binary_length(column.dictionary).take(column.indices)
                    claimed += compute.sum(lengths).as_py() or 0
            check_growth(path, size, claimed, DataError, held=held)


def _table(batch: Any) -> Table:
    return {name: _column(batch.column(name), name) for name in batch.schema.names}


def _column(values: Any, name: str) -> list[Any]:
    """Convert a column to Python's numbers, texts and lists of numbers."""
    kind = str(values.type)
    plain = re.sub(r"^(large_|fixed_size_)?list<\w+: (\w+)( not null)?>(\[\d+\])?$", r"\2", kind)
    if plain not in KNOWN_TYPES:
        raise DataError(
            f"column '{name}' holds values of the kind '{kind}', expected numbers, text or lists of numbers"
        )
    return values.to_pylist()  # type: ignore[no-any-return]  # pyarrow has no types


def _values(batch: Any, name: str) -> Any:
    """Convert a column of a batch to an array if its type allows, else as `_column` does."""
    values = batch.column(name)
    flat = values.flatten() if "list<" in str(values.type) else values
    if values.null_count or flat.null_count or str(flat.type) not in NUMPY_TYPES:
        return _column(values, name)
    numbers = flat.to_numpy(zero_copy_only=False).astype(NUMPY_TYPES[str(flat.type)])
    if flat is values:
        return numbers
    if len(values) and len(flat) % len(values) == 0:
        wide = len(flat) // len(values)
        lengths = np.asarray(values.value_lengths().to_numpy(zero_copy_only=False))
        if (lengths == wide).all():
            return numbers.reshape(len(values), wide)
    return _column(values, name)


NUMPY_TYPES = {
    **{f"{sign}int{bits}": np.int64 for sign in ("", "u") for bits in (8, 16, 32)},
    "int64": np.int64,
    "float": np.float64,
    "double": np.float64,
    "bool": np.bool_,
}
"""The NumPy type of each parquet type, the same as of a list of Python's numbers."""


def _length(batch: Mapping[str, Array]) -> int:
    return len(next(iter(batch.values()))) if batch else 0


def _first_row(inputs: Any) -> Inputs:
    if isinstance(inputs, Mapping):
        return {name: np.asarray(values)[:1] for name, values in inputs.items()}
    return np.asarray(inputs)[:1]
