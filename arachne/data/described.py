"""Lazy inputs from their description in plain values: how somebody else opens the same rows and reads only those."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from arachne.data.images import Pictures
from arachne.data.parquet import ParquetRows
from arachne.data.pieces import Cast, FileRows
from arachne.data.prepared import Prepared, as_lazy
from arachne.data.preprocess import Preprocess
from arachne.errors import DataError
from arachne.lazy import Chained, LazyArray, Source, as_array
from arachne.reading import foreign
from arachne.values import Inputs


def describe(inputs: Inputs) -> dict[str, Any]:
    """Lazy inputs, an array or a mapping of them, as plain values.

    Raises:
        DataError: They live in this process alone.
    """
    arrays = inputs if isinstance(inputs, Mapping) else {"": inputs}
    return {name: as_lazy(array).describe() for name, array in arrays.items()}


def open_described(values: Mapping[str, Any]) -> Inputs:
    """The inputs that `describe` told of, lazy again. Each read checks that files are what they were.

    Raises:
        DataError: A file is another here, or the values are no description.
    """
    with foreign("a description of data", DataError):
        opened: dict[str, Source] = {}
        arrays = {name: as_array(_array(one, opened)) for name, one in values.items()}
        return arrays[""] if list(arrays) == [""] else arrays


def _array(values: Mapping[str, Any], opened: dict[str, Source]) -> LazyArray:
    key = repr(values["source"])
    if key not in opened:  # several arrays of one source read it once
        opened[key] = _source(values["source"])
    return LazyArray(opened[key], str(values["name"]))


def _source(values: Mapping[str, Any]) -> Source:
    return _KINDS[str(values["kind"])](values)


def _prepared(values: Mapping[str, Any]) -> Source:
    return Prepared(open_described(values["arrays"]), Preprocess.parse(str(values["preprocess"])))


def _chained(values: Mapping[str, Any]) -> Source:
    return Chained([_array(part, {}) for part in values["parts"]])


def _cast(values: Mapping[str, Any]) -> Source:
    return Cast(_array(values["array"], {}), str(values["dtype"]))


_KINDS: Mapping[str, Callable[[Mapping[str, Any]], Source]] = {
    "file": FileRows.from_json,
    "parquet": ParquetRows.from_json,
    "pictures": Pictures.from_json,
    "prepared": _prepared,
    "chained": _chained,
    "cast": _cast,
}
