"""Parquet files: tables of paths or features and labels. Features that are many are read batch by batch."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from arachne.data.allowance import too_large
from arachne.data.found import LABEL_NAMES, Found, column_name
from arachne.data.pieces import Stamp
from arachne.data.preprocess import Preprocess
from arachne.data.tables import PATH, Table, as_column, as_features, as_labels, from_table
from arachne.errors import DataError, EnvironmentFaultError
from arachne.lazy import LazyArray, Source, as_array
from arachne.npz import check_growth
from arachne.reading import foreign, ordinary_file
from arachne.values import Array, Inputs

PLAIN = frozenset(
    [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
    + ["halffloat", "float", "double", "bool", "string", "large_string", "string_view", "null"]
)
"""The kinds of values of a parquet column that are understood, also as lists; `null` is a column without any."""

BATCH = 1024
"""Rows that are decoded at a time."""

LOOKED_AT = 8
"""Rows that tell what the features are."""


def read_parquet(path: Path, preprocess: Preprocess, limit: int | None, memory: int) -> Found:
    """Labelled inputs from a parquet file; columns of lists become inputs of their own.

    Args:
        path: The file.
        preprocess: What will be done with the inputs.
        limit: Read at most this many rows.
        memory: How many bytes of features may be held; more are read batch by batch.
    """
    with opened(path) as file:
        names, n = file.schema_arrow.names, _rows(file, path, limit)
        label = next((name for name in LABEL_NAMES if name in names), None)
        if label is not None and PATH not in names and n > LOOKED_AT:
            few = next(file.iter_batches(batch_size=LOOKED_AT))
            found = from_table(_table(few), f"'{path}'", path.parent, preprocess)
            if too_large(_first(found.inputs), n, preprocess, memory):
                features = [name for name in names if name != label and column_name(name) is None]
                rest = _table(file.read(columns=[name for name in names if name not in features]).slice(0, n))
                return Found(
                    inputs=features_of(path, features, n),
                    labels=as_labels(rest[label]),
                    columns={column_name(name) or name: as_column(rest[name]) for name in rest if name != label},
                    preprocess=preprocess,
                )
    return from_table(load_parquet(path, limit), f"'{path}'", path.parent, preprocess, memory)


def load_parquet(path: Path, limit: int | None) -> Table:
    """The columns of a parquet file."""
    with opened(path) as file:
        _rows(file, path, limit, held=True)
        table = file.read()
        return _table(table if limit is None else table.slice(0, limit))


def features_of(path: Path, names: Sequence[str], n: int) -> Inputs:
    """Columns of a parquet file as lazy inputs."""
    source = ParquetRows(Stamp.of(path), names, np.arange(n))
    arrays = {name: as_array(LazyArray(source, name)) for name in source.kinds}
    return arrays[""] if list(arrays) == [""] else arrays


class ParquetRows(Source):
    """Columns of a parquet file, decoded batch by batch, from the row group on that a row lies in.

    Rows that come in ascending order, as most do, are decoded once.

    Args:
        stamp: The file.
        names: The columns.
        rows: Which of its rows are meant.
    """

    def __init__(self, stamp: Stamp, names: Sequence[str], rows: Array) -> None:
        self._stamp, self._names, self._rows = stamp, list(names), rows
        self.n = len(rows)
        with opened(stamp.path) as file:
            groups = [file.metadata.row_group(number).num_rows for number in range(file.metadata.num_row_groups)]
            few = next(file.iter_batches(batch_size=LOOKED_AT, columns=self._names))
        self._starts = np.cumsum([0, *groups])
        self.kinds = {name: (array.shape[1:], array.dtype) for name, array in self._decoded(few).items()}
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
        """What `describe` told of."""
        return cls(Stamp.from_json(values["file"]), values["columns"], np.asarray(values["rows"], np.int64))

    def _all(self, rows: Array) -> Mapping[str, Array]:
        self._stamp.check()
        found = {name: np.empty((len(rows), *shape), dtype) for name, (shape, dtype) in self.kinds.items()}
        order = np.argsort(rows, kind="stable")
        ascending, done = rows[order], 0
        with foreign(f"'{self._stamp.path}' as parquet", DataError):
            while done < len(rows):
                self._move_to(int(ascending[done]))
                end = self._at + _length(self._batch)
                stop = int(np.searchsorted(ascending, end))
                for name, array in found.items():
                    array[order[done:stop]] = self._batch[name][ascending[done:stop] - self._at]
                done = stop
        return found

    def _move_to(self, row: int) -> None:
        """Decode on until the batch that holds a row, from the start of its row group if that lies behind."""
        group = int(np.searchsorted(self._starts, row, side="right")) - 1
        if group != self._group or row < self._at:
            self._batches, self._group = self._from(group), group
            self._at, self._batch = int(self._starts[group]), {}
        while row >= self._at + _length(self._batch):
            self._at += _length(self._batch)
            self._batch = self._decoded(next(self._batches))

    def _from(self, group: int) -> Iterator[Any]:
        with opened(self._stamp.path) as file:
            yield from file.iter_batches(batch_size=BATCH, row_groups=[group], columns=self._names, use_threads=False)

    def _decoded(self, batch: Any) -> Mapping[str, Array]:
        """Arrays as `as_features` makes them of a whole table."""
        found = as_features({name: _values(batch, name) for name in self._names}, self._names, f"'{self._stamp.path}'")
        arrays = found if isinstance(found, dict) else {"": found}
        if hasattr(self, "kinds") and any(a.shape[1:] != self.kinds[name][0] for name, a in arrays.items()):
            raise DataError(
                f"'{self._stamp.path}' is ragged: its lists have other lengths than those of the first rows"
            )
        return arrays


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """A parquet file; whatever is wrong with it while it is open is told in one sentence."""
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise EnvironmentFaultError(
            'reading parquet needs a package that is not installed (pyarrow): pip install "arachne-repair[parquet]"'
        ) from error
    ordinary_file(path, "data", DataError)
    with foreign(f"'{path}' as parquet", DataError), parquet.ParquetFile(path) as file:
        yield file


def _rows(file: Any, path: Path, limit: int | None, *, held: bool = False) -> int:
    """How many rows are read, after a look at what the file claims."""
    data = file.metadata
    claimed = sum(
        data.row_group(n).column(m).total_uncompressed_size
        for n in range(data.num_row_groups)
        for m in range(data.num_columns)
    )
    check_growth(path, path.stat().st_size, max(claimed, data.num_rows * data.num_columns), DataError, held=held)
    if not data.num_rows:
        raise DataError(f"'{path}' has no rows")
    if len(set(file.schema_arrow.names)) < len(file.schema_arrow.names):
        raise DataError(f"'{path}' has two columns of the same name")
    return int(data.num_rows if limit is None else min(data.num_rows, limit))


def _table(batch: Any) -> Table:
    return {name: _column(batch.column(name), name) for name in batch.schema.names}


def _column(values: Any, name: str) -> list[Any]:
    """A column as Python's numbers, texts and lists of numbers."""
    kind = str(values.type)
    plain = re.sub(r"^(large_|fixed_size_)?list<\w+: (\w+)( not null)?>(\[\d+\])?$", r"\2", kind)
    if plain not in PLAIN:
        raise DataError(
            f"column '{name}' holds values of the kind '{kind}', expected numbers, text or lists of numbers"
        )
    return values.to_pylist()  # type: ignore[no-any-return]  # pyarrow has no types


def _values(batch: Any, name: str) -> Any:
    """A column of a batch: as an array where that is the same and fast, else as `_column` has it."""
    values = batch.column(name)
    flat = values.flatten() if "list<" in str(values.type) else values
    if values.null_count or flat.null_count or str(flat.type) not in FAST:
        return _column(values, name)
    numbers = flat.to_numpy(zero_copy_only=False).astype(FAST[str(flat.type)])
    if flat is values:
        return numbers
    if len(values) and len(flat) % len(values) == 0:
        wide = len(flat) // len(values)
        lengths = np.asarray(values.value_lengths().to_numpy(zero_copy_only=False))
        if (lengths == wide).all():
            return numbers.reshape(len(values), wide)
    return _column(values, name)


FAST = {
    **{f"{sign}int{bits}": np.int64 for sign in ("", "u") for bits in (8, 16, 32)},
    "int64": np.int64,
    "float": np.float64,
    "double": np.float64,
    "bool": np.bool_,
}
"""What becomes of a kind of value in an array, as of a list of Python's numbers."""


def _length(batch: Mapping[str, Array]) -> int:
    return len(next(iter(batch.values()))) if batch else 0


def _first(inputs: Any) -> Inputs:
    if isinstance(inputs, Mapping):
        return {name: np.asarray(values)[:1] for name, values in inputs.items()}
    return np.asarray(inputs)[:1]
