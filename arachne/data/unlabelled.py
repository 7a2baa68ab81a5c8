"""Read inputs without labels, on which only the changes by a patch can be counted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from arachne.data.checks import as_inputs, check_finite
from arachne.data.labelled import LabelledData
from arachne.data.lazy.fit_memory import fit_memory
from arachne.data.preprocess import Preprocess
from arachne.data.readers.arrays import from_arrays, load_npy_folder, load_npz
from arachne.data.readers.images import load_pictures, picture_names, pictures_below
from arachne.data.readers.masks import find_masks
from arachne.data.readers.parquet import load_parquet
from arachne.data.readers.raw import LABEL_NAMES, RawData
from arachne.data.readers.tables import from_table, load_csv
from arachne.errors import DataError
from arachne.io.npz import map_npy
from arachne.model.lazy import MEMORY
from arachne.model.values import count

UNKNOWN = -1
"""The label of an input that has none."""


def read_unlabelled(
    source: Any, *, preprocess: str | Preprocess | None = None, limit: int | None = None, memory: int = MEMORY
) -> LabelledData:
    """Read inputs without labels; labels in the source are ignored, and all become `UNKNOWN`.

    Args:
        source: A directory of pictures, nested or not, or of `.npy` files; an npz, npy, csv or parquet file; an array,
            or a mapping of arrays.
        preprocess: The preprocessing of the inputs, as in `scale=1/255 layout=nchw`.
        limit: Read at most this many, the first ones.
        memory: The most bytes to hold; arrays and pictures that take more are read in pieces.

    Raises:
        DataError: The source holds nothing that could be inputs.
    """
    steps = Preprocess.parse(preprocess)
    is_path = isinstance(source, (str, Path))
    found = _from_path(Path(source), steps, limit, memory) if is_path else _from_arrays(source, steps)
    remaining = found.preprocess if found.preprocess is not None else steps
    inputs = as_inputs(remaining(fit_memory(as_inputs(found.inputs), remaining, memory)))
    check_finite(inputs)
    if not count(inputs):
        raise DataError(f"'{source}' holds no inputs")
    name = str(source) if isinstance(source, (str, Path)) else None
    labels = np.full(count(inputs), UNKNOWN)
    return LabelledData(inputs, labels, found.class_names, found.names, found.columns, source=name)


def _from_path(path: Path, preprocess: Preprocess, limit: int | None, memory: int) -> RawData:
    if not path.exists():
        raise DataError(f"data '{path}' does not exist")
    if path.is_dir():
        if any(path.glob("*.npy")):
            return _from_named_arrays(load_npy_folder(path), path, preprocess, limit)
        return _pictures(path, preprocess, limit, memory)
    name = path.name.lower()
    if name.endswith(".npz"):
        return _from_named_arrays(load_npz(path, memory), path, preprocess, limit)
    if name.endswith(".npy"):
        return _from_named_arrays({"x": map_npy(path, "data", DataError)}, path, preprocess, limit)
    if name.endswith((".csv", ".tsv", ".csv.gz")):
        table = dict(load_csv(path, limit))
    elif name.endswith(".parquet"):
        table = dict(load_parquet(path, limit))
    else:
        raise DataError(f"cannot read inputs from '{path.name}'; known: .npz, .npy, .csv, .parquet, a directory")
    rows = len(next(iter(table.values())))
    known = {name: column for name, column in table.items() if name not in LABEL_NAMES}
    return from_table({**known, "y": [str(UNKNOWN)] * rows}, f"'{path}'", path.parent, preprocess, memory)


def _from_named_arrays(arrays: Mapping[str, Any], path: Path, preprocess: Preprocess, limit: int | None) -> RawData:
    known = {name: array for name, array in arrays.items() if name not in LABEL_NAMES and array.ndim}
    if not known:
        raise DataError(f"'{path}' has no array 'x' with the inputs")
    rows = len(known["x"] if "x" in known else next(iter(known.values())))
    return from_arrays({**known, "y": np.full(rows, UNKNOWN)}, str(path), preprocess, limit)


def _from_arrays(source: Any, preprocess: Preprocess) -> RawData:
    return RawData(source.inputs if isinstance(source, LabelledData) else source, None, preprocess=preprocess)


def _pictures(folder: Path, preprocess: Preprocess, limit: int | None, memory: int) -> RawData:
    masks = find_masks(folder)
    paths = (pictures_below(folder) if masks is None else list(masks))[:limit]
    if not paths:
        raise DataError(f"no pictures and no .npy files below '{folder}'")
    head, rest = preprocess.split_images()
    found = RawData(load_pictures(paths, head, rest, folder, memory), None, preprocess=rest)
    return replace(found, names=picture_names(paths, folder))
