"""Join data from several files: a pattern such as `lake/*.parquet`, a list, a folder of parquet files."""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from arachne.data.checks import as_inputs
from arachne.data.readers.raw import RawData
from arachne.errors import DataError
from arachne.model.lazy import concatenate
from arachne.model.values import Inputs, by_name

PARQUET_PATTERN = "*.parquet"
"""The files of a folder of parquet files."""


def files_of(source: Any) -> list[Path] | None:
    """List the files of a source that names several, in order; None for any other source.

    Raises:
        DataError: A pattern matches no file.
    """
    if isinstance(source, (list, tuple)) and source and all(isinstance(one, (str, Path)) for one in source):
        return [path for one in source for path in files_of(one) or [Path(one)]]
    if not isinstance(source, (str, Path)):
        return None
    if os.path.isdir(source):
        return None if any(Path(source).glob("*.npy")) else sorted(Path(source).glob(PARQUET_PATTERN)) or None
    text = str(source)
    if os.path.lexists(text):
        return None
    if "," in text:
        return files_of(text.split(","))
    if not glob.has_magic(text):
        return None
    found = sorted(map(Path, glob.glob(text, recursive=True)))
    if not found:
        raise DataError(f"no file fits '{text}'")
    return found


def join(parts: Sequence[tuple[Path, RawData]]) -> RawData:
    """Concatenate the content of several sources.

    Raises:
        DataError: They do not fit together.
    """
    first_path, first = parts[0]
    for path, other in parts[1:]:
        if other.class_names != first.class_names:
            raise DataError(f"'{path}' names other classes than '{first_path}'")
        if set(other.columns) != set(first.columns):
            differing = ", ".join(sorted(set(other.columns) ^ set(first.columns)))
            raise DataError(f"'{path}' and '{first_path}' do not have the same metadata: {differing}")
    found = [one for _, one in parts]
    names = [one.names for one in found]
    known = [name for one in found for name in one.known_names or ()]
    return RawData(
        inputs=_join_inputs([(path, as_inputs(one.inputs)) for path, one in parts]),
        labels=_join_labels([(path, one.labels) for path, one in parts]),
        class_names=first.class_names,
        known_names=list(dict.fromkeys(known)) or None,
        names=None if None in names else tuple(name for own in names for name in own or ()),
        columns={name: np.concatenate([one.columns[name] for one in found]) for name in first.columns},
        preprocess=first.preprocess,
        value_names=first.value_names if all(one.value_names == first.value_names for one in found) else None,
    )


def _join_inputs(parts: Sequence[tuple[Path, Inputs]]) -> Inputs:
    first_path, first = parts[0]
    found = by_name(first)
    for path, other in parts[1:]:
        own = by_name(other)
        if set(own) != set(found):
            raise DataError(f"'{path}' has the inputs {', '.join(own)}, '{first_path}' has {', '.join(found)}")
        for name, array in own.items():
            if array.shape[1:] != found[name].shape[1:]:
                raise DataError(
                    f"inputs of '{path}' have the shape {array.shape[1:]}, of '{first_path}' {found[name].shape[1:]}"
                )
        found = {name: concatenate(array, own[name]) for name, array in found.items()}
    return found if isinstance(first, Mapping) else found[""]


def _join_labels(parts: Sequence[tuple[Path, Any]]) -> Any:
    columns = [np.asarray(labels) for _, labels in parts]
    kinds = {"number" if column.dtype.kind in "biuf" else "name" for column in columns}
    if len(kinds) > 1:
        raise DataError("the labels are numbers in some files and names in others; use the same in all")
    return np.concatenate(columns)
