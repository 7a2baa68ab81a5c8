"""Read arrays from `.npz` files, or from a directory of `.npy` files, which are memory-mapped."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from arachne.data.preprocess import Preprocess
from arachne.data.readers.raw import LABEL_NAMES, RawData, column_name
from arachne.errors import DataError, did_you_mean
from arachne.io import npz
from arachne.model.values import Array

CLASS_NAMES = "class_names"


def read_npz(path: Path, preprocess: Preprocess, limit: int | None, memory: int) -> RawData:
    """Read labelled inputs from the arrays of an npz; large uncompressed ones are memory-mapped."""
    return from_arrays(load_npz(path, memory), str(path), preprocess, limit)


def load_npz(path: Path, memory: int) -> dict[str, Array]:
    """Load the arrays of an npz by name; nothing in it can run code."""
    return npz.read_npz(path, "data", DataError, held=memory)


def read_npy_folder(folder: Path, preprocess: Preprocess, limit: int | None, memory: int) -> RawData:
    """Read labelled inputs from the arrays `x.npy`, `y.npy` and so on of a directory."""
    return from_arrays(load_npy_folder(folder), str(folder), preprocess, limit)


def load_npy_folder(folder: Path) -> dict[str, Array]:
    """Map the arrays of a directory by name; they may be larger than memory."""
    return {path.stem: npz.map_npy(path, "array", DataError) for path in sorted(folder.glob("*.npy"))}


def from_arrays(arrays: Mapping[str, Array], source: str, preprocess: Preprocess, limit: int | None) -> RawData:
    """Make labelled inputs of named arrays.

    `y` is the labels, `class_names` the names, `group_…` and `meta_…` are metadata. If there is an `x`, it is the
    input; other arrays with two or more axes are further inputs, and those with one axis are metadata. Without `x`,
    every other array is an input, and if there is only one, its name does not matter.

    Raises:
        DataError: There are no labels, no inputs, or arrays of different lengths.
    """
    if not arrays:
        raise DataError(
            f"'{source}' is empty: it holds no arrays; expected 'x' with the inputs and 'y' with the labels"
        )
    label = next((name for name in LABEL_NAMES if name in arrays), None)
    if label is None:
        choices = did_you_mean("y", arrays)
        raise DataError(f"'{source}' has no array 'y' with the labels{choices}")
    labels = arrays[label]
    inputs: dict[str, Array] = {}
    columns: dict[str, Array] = {}
    for name, array in arrays.items():
        if name in (label, CLASS_NAMES) or array.ndim == 0:
            continue
        if labels.ndim and len(array) != len(labels):
            raise DataError(f"array '{name}' of '{source}' has {len(array)} rows, but '{label}' has {len(labels)}")
        metadata = column_name(name) or (name if name != "x" and "x" in arrays and array.ndim == 1 else None)
        if metadata is None:
            inputs[name] = array[:limit]
        elif array.ndim == 1 and array.dtype.kind in "USiub" and metadata not in columns:
            columns[metadata] = np.asarray(array[:limit])
        else:
            raise DataError(f"array '{name}' of '{source}' is no metadata: expected one text or integer per row, once")
    if not inputs:
        raise DataError(f"'{source}' has no array 'x' with the inputs; it has: {', '.join(arrays)}")
    return RawData(
        inputs=next(iter(inputs.values())) if len(inputs) == 1 else inputs,
        labels=np.asarray(labels[:limit]) if labels.ndim else labels,
        class_names=tuple(map(str, np.ravel(arrays[CLASS_NAMES]).tolist())) if CLASS_NAMES in arrays else None,
        columns=columns,
        preprocess=preprocess,
    )
