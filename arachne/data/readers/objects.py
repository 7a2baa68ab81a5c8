"""Read data sets of other packages, recognised by the name of their module: none of them is imported here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from arachne.data.checks import as_inputs
from arachne.data.preprocess import Preprocess
from arachne.data.readers.images import pixels, stack_images
from arachne.data.readers.raw import LABEL_NAMES, RawData, column_name
from arachne.data.readers.tables import as_column, from_table
from arachne.errors import DataError
from arachne.model.values import Array

Reader = Callable[[Any, Preprocess, int | None], RawData]
Batch = Mapping[str, Any]
"""Columns by name; the inputs of an unnamed `(x, y)` pair are called `x`, its labels `y`."""


def reader_for(source: Any) -> Reader | None:
    """Return the reader for an object; None if its kind is not known."""
    for base in type(source).__mro__:
        module = base.__module__
        if module.startswith("torch.utils.data"):
            return _read_loader if base.__name__ == "DataLoader" else _read_torch_dataset
        if module.startswith("tensorflow.python.data"):
            return _read_tf_data
        if module.partition(".")[0] == "datasets":
            return _read_hugging_face
    return None


def _read_loader(loader: Any, preprocess: Preprocess, limit: int | None) -> RawData:
    """Read a torch `DataLoader` of `(x, y)`, or of mappings that include the labels."""
    if type(loader.sampler).__name__ == "RandomSampler":
        raise DataError("the DataLoader shuffles, so rows would differ from run to run; make it with shuffle=False")
    classes = getattr(loader.dataset, "classes", None)
    return _from_batches(map(_columns, loader), classes, preprocess, limit)


def _read_torch_dataset(dataset: Any, preprocess: Preprocess, limit: int | None) -> RawData:
    """Read a torch `Dataset` of single inputs, possibly pictures, with their labels."""
    items = (dataset[row] for row in range(len(dataset))) if hasattr(dataset, "__len__") else iter(dataset)
    return _from_rows(map(_columns, islice(items, limit)), getattr(dataset, "classes", None), preprocess)


def _read_tf_data(dataset: Any, preprocess: Preprocess, limit: int | None) -> RawData:
    """Read a `tf.data.Dataset` of `(x, y)`, in batches or not."""
    if limit is None and int(dataset.cardinality()) == -1:
        raise DataError("the tf.data set repeats for ever; leave out repeat(), or give a limit")
    spec = _columns(dataset.element_spec)
    classes = getattr(dataset, "class_names", None)
    items = map(_columns, dataset.as_numpy_iterator())
    if spec[_label(spec)].shape.rank == 0:
        return _from_rows(islice(items, limit), classes, preprocess)
    return _from_batches(items, classes, preprocess, limit)


def _read_hugging_face(dataset: Any, preprocess: Preprocess, limit: int | None) -> RawData:
    """Read a Hugging Face `Dataset`: columns of arrays or pictures are inputs, single values are metadata."""
    if isinstance(dataset, Mapping):
        raise DataError(f"the DatasetDict has several splits ({', '.join(dataset)}); give one of them")
    features = dataset.features or {}
    classes = getattr(features.get(_label(features)), "names", None) if features else None
    return _from_rows(islice(dataset.with_format(None), limit), classes, preprocess)


def _columns(item: Any) -> Batch:
    """Return the columns of an item: a pair whose inputs may be a mapping, or a mapping."""
    if isinstance(item, Mapping):
        return item
    if not (isinstance(item, (tuple, list)) and len(item) == 2):
        count = f"{len(item)} values" if isinstance(item, (tuple, list)) else "inputs alone"
        raise DataError(f"expected (inputs, labels) or a mapping with 'label' from the data set, got {count}")
    inputs, labels = item
    if isinstance(inputs, (tuple, list)) and np.ndim(inputs[0]):
        raise DataError(f"the data set gives {len(inputs)} inputs without names; give them as a mapping")
    return {**inputs, "y": labels} if isinstance(inputs, Mapping) else {"x": inputs, "y": labels}


def _label(columns: Iterable[str]) -> str:
    names = list(columns)
    for name in LABEL_NAMES:
        if name in names:
            return name
    raise DataError(f"the data set has no column 'label'; it has: {', '.join(map(str, names)) or 'none'}")


def _from_batches(batches: Iterator[Batch], classes: Any, preprocess: Preprocess, limit: int | None) -> RawData:
    """Join batches of rows to one array for each column."""
    parts: dict[str, list[Array]] = {}
    rows = 0
    for batch in batches:
        label = _label(batch)
        for name, values in batch.items():
            parts.setdefault(name, []).append(_values(name, values))
        rows += len(parts[label][-1])
        if limit is not None and rows >= limit:
            break
    return _raw_data({name: _concatenate(name, arrays)[:limit] for name, arrays in parts.items()}, classes, preprocess)


def _from_rows(rows: Iterator[Batch], classes: Any, preprocess: Preprocess) -> RawData:
    """Join single rows to one array for each column; pictures are decoded and brought to one size."""
    head, rest = preprocess.split_images()
    parts: dict[str, list[Any]] = {}
    pictures = set()
    for row in rows:
        for name, value in row.items():
            if hasattr(value, "getbands"):  # a Pillow image
                pictures.add(name)
                value = np.asarray(head(pixels(value)[None]))[0]
            parts.setdefault(name, []).append(_values(name, value))
    columns = {
        name: stack_images(values, [f"row {row}" for row in range(len(values))]) if name in pictures else values
        for name, values in parts.items()
    }
    return _raw_data(columns, classes, rest if pictures else preprocess)


def _values(name: str, values: Any) -> Any:
    """Convert any kind of tensor to an array of numbers; texts and single values stay as they are."""
    if hasattr(values, "detach") or hasattr(values, "__array__"):
        return as_inputs(values) if np.ndim(values) and _kind(values) not in "SUO" else np.asarray(values)
    if isinstance(values, (list, tuple)) and not all(isinstance(value, (str, bytes)) for value in values):
        return as_inputs(values)
    return np.asarray(values) if isinstance(values, (list, tuple)) else values


def _kind(values: Any) -> str:
    return str(getattr(values.dtype, "kind", "f"))


def _concatenate(name: str, arrays: list[Array]) -> Array:
    shapes = sorted({array.shape[1:] for array in arrays})
    if len(shapes) > 1:
        raise DataError(f"'{name}' is ragged: batches of shape {shapes[0]} and {shapes[1]}; pad them to one length")
    return np.concatenate(arrays)


def _raw_data(columns: Mapping[str, Any], classes: Any, preprocess: Preprocess) -> RawData:
    if not columns:
        raise DataError("the data set has no rows")
    label = _label(columns)
    names = tuple(map(str, classes)) if classes is not None else None
    inputs = [
        name
        for name, values in columns.items()
        if name != label and column_name(name) is None and len(values) and np.ndim(values[0])
    ]
    if not inputs:
        found = from_table(columns, "the data set", Path(), preprocess)
        return RawData(found.inputs, found.labels, names, columns=found.columns, preprocess=preprocess)
    others = [name for name in columns if name != label and name not in inputs]
    return RawData(
        inputs=columns[inputs[0]] if len(inputs) == 1 else {name: columns[name] for name in inputs},
        labels=np.asarray(columns[label]),
        class_names=names,
        columns={column_name(name) or name: as_column(columns[name]) for name in others},
        preprocess=preprocess,
    )
