"""From whatever the user has to `LabelledData`: files, folders, arrays, and other packages' data sets."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from arachne.data.arrays import read_npy_folder, read_npz
from arachne.data.checks import as_inputs, check_finite, check_lengths
from arachne.data.classes import Classes, check_names, class_numbers, read_class_names
from arachne.data.found import Found
from arachne.data.frames import is_frame, read_frame, read_frame_and_labels
from arachne.data.images import read_image_folder
from arachne.data.labelled import LabelledData
from arachne.data.objects import reader_for
from arachne.data.preprocess import Preprocess
from arachne.data.tables import read_csv, read_parquet
from arachne.errors import DataError, UsageError

FILE_READERS = {
    ".npz": read_npz,
    ".csv": read_csv,
    ".tsv": read_csv,
    ".csv.gz": read_csv,
    ".parquet": read_parquet,
}


def read_data(
    source: Any,
    *,
    classes: Classes = None,
    preprocess: str | Preprocess | None = None,
    n_classes: int | None = None,
    limit: int | None = None,
) -> LabelledData:
    """Read labelled inputs, check them and number their classes.

    Args:
        source: An npz, csv or parquet file; a directory with one directory of pictures per class, or with `x.npy` and
            `y.npy` (memory-mapped); `(x, y)`; a pandas or polars `DataFrame`, with its labels or beside them; a torch
            `DataLoader` or `Dataset`, a `tf.data.Dataset`, a Hugging Face `Dataset`; or `LabelledData`, which comes
            back as it is.
        classes: The model's class names in order: a list, comma-separated text, or a file with one per line.
        preprocess: What to do with the inputs, as in `scale=1/255 layout=nchw`.
        n_classes: How many classes the model has; labels outside are refused.
        limit: Read at most this many rows, the first ones.

    Returns:
        The data; its `class_names` are the mapping that was used, to be shown to the user.

    Raises:
        DataError: Something in the source cannot be used; one sentence says what.
        UsageError: Class names or preprocessing that mean nothing.
    """
    if limit is not None and limit < 1:
        raise UsageError(f"expected a limit above 0, got {limit}")
    steps = Preprocess.parse(preprocess)
    names = read_class_names(classes, n_classes)
    if isinstance(source, LabelledData):
        if not steps and names is None and n_classes is None and limit is None:
            return source
        found = _from_labelled(source, steps, limit)
    else:
        found = _find(source, steps, limit)
    data = _numbered(found, names, n_classes)
    remaining = found.preprocess if found.preprocess is not None else steps
    if isinstance(source, LabelledData) and names is None:
        data = replace(data, names_assumed=source.names_assumed)
    data = replace(data, inputs=as_inputs(remaining(data.inputs)), source=_source(source))
    check_finite(data.inputs)
    return data


def _find(source: Any, preprocess: Preprocess, limit: int | None) -> Found:
    if isinstance(source, (str, Path)):
        try:
            return _from_path(Path(source), preprocess, limit)
        except OSError as error:
            raise DataError(f"cannot read '{source}': {error.strerror or error}") from error
    if is_frame(source):
        return read_frame(source, preprocess, limit)
    if isinstance(source, tuple) and len(source) == 2 and is_frame(source[0]):
        return read_frame_and_labels(source[0], source[1], preprocess, limit)
    if isinstance(source, tuple) and len(source) == 2:
        return _from_pair(source[0], source[1], preprocess, limit)
    reader = reader_for(source)
    if reader is None:
        raise DataError(
            f"cannot read data from '{type(source).__module__}.{type(source).__qualname__}'; expected a path, (x, y) "
            "arrays, a DataFrame, a DataLoader, tf.data or a Hugging Face Dataset"
        )
    return reader(source, preprocess, limit)


def _from_path(path: Path, preprocess: Preprocess, limit: int | None) -> Found:
    if os.path.isdir(path):
        if any(path.glob("*.npy")):
            return read_npy_folder(path, preprocess, limit)
        return read_image_folder(path, preprocess, limit)
    if not os.path.exists(path):
        raise DataError(f"data '{path}' does not exist")
    for suffix, reader in FILE_READERS.items():
        if path.name.lower().endswith(suffix):
            return reader(path, preprocess, limit)
    if path.suffix.lower() == ".npy":
        raise DataError(f"'{path}' holds inputs without labels; name the directory that holds x.npy and y.npy")
    raise DataError(f"cannot read data from '{path.name}'; known: {', '.join(FILE_READERS)}, a directory")


def _from_pair(inputs: Any, labels: Any, preprocess: Preprocess, limit: int | None) -> Found:
    arrays = as_inputs(inputs)
    labels = as_inputs(labels) if hasattr(labels, "detach") else labels
    if limit is not None:
        arrays = {k: v[:limit] for k, v in arrays.items()} if isinstance(arrays, Mapping) else arrays[:limit]
        labels = labels[:limit]
    return Found(arrays, labels, preprocess=preprocess)


def _from_labelled(data: LabelledData, preprocess: Preprocess, limit: int | None) -> Found:
    data = data if limit is None else data.take(range(min(limit, len(data))))
    return Found(data.inputs, data.labels, data.class_names, None, data.names, data.columns, preprocess)


def _numbered(found: Found, names: tuple[str, ...] | None, n_classes: int | None) -> LabelledData:
    """Labels as numbers. Where the source numbers its classes in another order than the model, names decide."""
    inputs = as_inputs(found.inputs)
    own = found.class_names
    labels = found.labels
    if own is not None:
        if names is None and n_classes is not None:
            check_names(own, n_classes, assumed=True)
        labels, _, _ = class_numbers(labels, own)
        if names is not None and set(own) <= set(names):
            labels = np.array(own)[labels]
    numbers, class_names, assumed = class_numbers(
        labels, names or own, n_classes=n_classes, known_names=found.known_names
    )
    check_lengths(inputs, numbers)
    assumed = assumed or (names is None and own is not None)
    return LabelledData(inputs, numbers, class_names, found.names, found.columns, names_assumed=assumed)


def _source(source: Any) -> str | None:
    if isinstance(source, LabelledData):
        return source.source
    if isinstance(source, (str, Path)):
        return str(source)
    return None if isinstance(source, tuple) else f"{type(source).__module__}.{type(source).__qualname__}"
