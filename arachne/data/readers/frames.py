"""Read data frames of pandas and polars, recognised by the name of their module: neither is imported here.

A frame is read like a csv: a column `label` or `y`, and features or a column `path`; columns called `group_…` or
`meta_…` are metadata. A categorical column of labels gives the classes in its own order.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from arachne.data.preprocess import Preprocess
from arachne.data.readers.raw import LABEL_NAMES, RawData
from arachne.data.readers.tables import Table, from_table
from arachne.errors import DataError

FRAMES = {("pandas", "DataFrame"), ("polars", "DataFrame"), ("polars", "LazyFrame")}


def is_frame(source: Any) -> bool:
    """Whether an object is a data frame of a known package."""
    return any((base.__module__.partition(".")[0], base.__name__) in FRAMES for base in type(source).__mro__)


def read_frame(frame: Any, preprocess: Preprocess, limit: int | None) -> RawData:
    """Read labelled inputs from a data frame; paths in it are relative to the current folder.

    Args:
        frame: A `DataFrame` of pandas or polars, or a `LazyFrame`.
        preprocess: The preprocessing, which brings pictures to one size.
        limit: Read at most this many rows.
    """
    return _read(_collect(frame, limit), preprocess)


def read_frame_and_labels(frame: Any, labels: Any, preprocess: Preprocess, limit: int | None) -> RawData:
    """Read labelled inputs from a frame of features and separate labels `(n,)`: a series, a list or an array.

    Raises:
        DataError: The frame has a column of labels already, or another number of rows.
    """
    taken = _collect(frame, limit)
    inside = [name for name in LABEL_NAMES if name in list(taken.columns)]
    if inside:
        raise DataError(f"labels were given beside a data frame with a column '{inside[0]}'; leave out one of them")
    labels = labels[:limit] if limit is not None else labels
    if len(labels) != len(taken):
        raise DataError(f"the data frame has {len(taken)} rows, and there are {len(labels)} labels")
    return _read(taken, preprocess, labels)


def _collect(frame: Any, limit: int | None) -> Any:
    frame = frame if limit is None else frame.head(limit)
    return frame.collect() if hasattr(frame, "collect") else frame  # polars' LazyFrame


def _read(frame: Any, preprocess: Preprocess, labels: Any = None) -> RawData:
    names = [str(name) for name in frame.columns]
    if len(set(names)) < len(names):
        raise DataError("the data frame has two columns of the same name")
    if not len(frame):
        raise DataError("the data frame has no rows")
    series = {str(name): frame[name] for name in frame.columns}
    if labels is not None:
        series[LABEL_NAMES[0]] = labels
    table: Table = {name: _values(values) for name, values in series.items()}
    found = from_table(table, "the data frame", Path(), preprocess)
    label = next(name for name in LABEL_NAMES if name in series)
    return replace(found, class_names=_categories(series[label]), known_names=None)


def _values(series: Any) -> Any:
    """Return the values of a column: an array if all are numbers, else a list with None for missing values."""
    values = np.asarray(series.to_numpy() if hasattr(series, "to_numpy") else series)
    if values.dtype.kind in "biuf":
        return values
    listed = series.to_list() if hasattr(series, "to_list") else list(series)
    return [None if _is_missing(value) else value for value in listed]


def _is_missing(value: Any) -> bool:
    """Whether a value is None, NaN or `pandas.NA`."""
    if value is None or type(value).__name__ == "NAType":
        return True
    return isinstance(value, float) and value != value


def _categories(series: Any) -> tuple[str, ...] | None:
    """Return the classes of a categorical column of labels, in its order; None for other columns."""
    kind = getattr(series, "dtype", None)
    categories = getattr(kind, "categories", None)
    if categories is None or type(kind).__name__ not in ("CategoricalDtype", "Enum"):
        return None
    return tuple(map(str, categories))
