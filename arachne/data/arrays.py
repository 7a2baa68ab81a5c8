"""Arrays from files: `.npz`, or a directory of `.npy` files, which are memory-mapped."""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib import format as npy_format

from arachne.data.found import LABEL_NAMES, Found, column_name
from arachne.data.preprocess import Preprocess
from arachne.errors import DataError, did_you_mean
from arachne.values import Array

CLASS_NAMES = "class_names"


def read_npz(path: Path, preprocess: Preprocess, limit: int | None) -> Found:
    """Labelled inputs from the arrays of an npz."""
    return from_arrays(load_npz(path), str(path), preprocess, limit)


def load_npz(path: Path) -> dict[str, Array]:
    """The arrays of an npz by name; nothing in it can run code."""
    try:
        with zipfile.ZipFile(path) as archive:
            _check_sizes(archive, path)
        with np.load(path, allow_pickle=False) as content:
            return {name: content[name] for name in content.files}
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error, NotImplementedError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"cannot read '{path}' as npz: {_reason(error)}") from error


def read_npy_folder(folder: Path, preprocess: Preprocess, limit: int | None) -> Found:
    """Labelled inputs from the arrays `x.npy`, `y.npy` and so on of a directory."""
    return from_arrays(load_npy_folder(folder), str(folder), preprocess, limit)


def load_npy_folder(folder: Path) -> dict[str, Array]:
    """The arrays of a directory by name, memory-mapped: they may be larger than memory."""
    arrays: dict[str, Array] = {}
    for path in sorted(folder.glob("*.npy")):
        try:
            arrays[path.stem] = np.load(path, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise DataError(f"cannot read '{path}' as npy: {_reason(error)}") from error
    return arrays


def from_arrays(arrays: Mapping[str, Array], source: str, preprocess: Preprocess, limit: int | None) -> Found:
    """Labelled inputs from named arrays.

    `y` is the labels, `class_names` the names, `group_…` and `meta_…` are metadata. If there is an `x`, it is the
    input; other arrays with two or more axes are further inputs, and those with one axis are metadata. Without `x`,
    every other array is an input, and if there is only one, its name does not matter.

    Raises:
        DataError: No labels, no inputs, or arrays of different lengths.
    """
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
    return Found(
        inputs=next(iter(inputs.values())) if len(inputs) == 1 else inputs,
        labels=np.asarray(labels[:limit]) if labels.ndim else labels,
        class_names=tuple(map(str, np.ravel(arrays[CLASS_NAMES]).tolist())) if CLASS_NAMES in arrays else None,
        columns=columns,
        preprocess=preprocess,
    )


def _check_sizes(archive: zipfile.ZipFile, path: Path) -> None:
    """Refuse arrays that do not fit into memory or claim more than the file holds, before any is allocated."""
    total = sum(info.file_size for info in archive.infolist())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else None
    if memory is not None and total > memory:
        raise DataError(
            f"'{path}' unpacks to {total / 2**30:.1f} GiB, more than the {memory / 2**30:.1f} GiB of memory; "
            "put x.npy and y.npy into a directory instead, they are memory-mapped"
        )
    for info in archive.infolist():
        if not info.filename.endswith(".npy"):
            continue
        with archive.open(info) as member:
            shape, dtype = _header(member)
            claimed = dtype.itemsize
            for side in shape:
                claimed *= side
        if claimed > info.file_size and dtype.kind != "O":
            raise DataError(f"'{path}' is broken: '{info.filename}' claims {claimed} bytes and holds {info.file_size}")


def _header(member: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[np.generic]]:
    version = npy_format.read_magic(member)
    read = npy_format.read_array_header_1_0 if version == (1, 0) else npy_format.read_array_header_2_0
    shape, _, dtype = read(member)
    return shape, dtype


def _reason(error: Exception) -> str:
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    return "it holds Python objects, not arrays of numbers" if "allow_pickle" in text else text.rstrip(".")
