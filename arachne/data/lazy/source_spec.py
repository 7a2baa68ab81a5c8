"""Describe lazy inputs in plain values, so that another process can open the same rows and read only those."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from arachne.data.lazy.preprocess import PreprocessedRows, as_lazy
from arachne.data.lazy.row_reader import Cast, FileRows
from arachne.data.preprocess import Preprocess
from arachne.data.readers.images import Pictures
from arachne.data.readers.parquet import ParquetRows
from arachne.errors import DataError
from arachne.io.reading import parse_errors_as
from arachne.model.lazy import Chained, LazyArray, Source, as_array
from arachne.model.values import Inputs, by_name


def describe(inputs: Inputs) -> dict[str, Any]:
    """Describe lazy inputs, an array or a mapping of them, in plain values.

    Raises:
        DataError: The inputs are in the memory of this process.
    """
    arrays = by_name(inputs)
    return {name: as_lazy(array).describe() for name, array in arrays.items()}


def open_description(values: Mapping[str, Any]) -> Inputs:
    """Open the lazy inputs that `describe` described. Each read checks that the files have not changed.

    Raises:
        DataError: A file has changed, or the values are no description.
    """
    with parse_errors_as("a description of data", DataError):
        sources: dict[str, Source] = {}
        arrays = {name: as_array(_array(one, sources)) for name, one in values.items()}
        return arrays[""] if list(arrays) == [""] else arrays


def _array(values: Mapping[str, Any], sources: dict[str, Source]) -> LazyArray:
    key = repr(values["source"])
    if key not in sources:  # several arrays of one source read it once
        sources[key] = _source(values["source"])
    return LazyArray(sources[key], str(values["name"]))


def _source(values: Mapping[str, Any]) -> Source:
    return _KINDS[str(values["kind"])](values)


def _open_preprocessed(values: Mapping[str, Any]) -> Source:
    return PreprocessedRows(open_description(values["arrays"]), Preprocess.parse(str(values["preprocess"])))


def _open_chained(values: Mapping[str, Any]) -> Source:
    return Chained([_array(part, {}) for part in values["parts"]])


def _open_cast(values: Mapping[str, Any]) -> Source:
    return Cast(_array(values["array"], {}), str(values["dtype"]))


_KINDS: Mapping[str, Callable[[Mapping[str, Any]], Source]] = {
    "file": FileRows.from_json,
    "parquet": ParquetRows.from_json,
    "pictures": Pictures.from_json,
    "prepared": _open_preprocessed,
    "chained": _open_chained,
    "cast": _open_cast,
}
