"""Read `LabelledData` from files, folders, arrays, and other packages' data sets."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from arachne.data.checks import as_inputs, check_finite, check_lengths
from arachne.data.classes import Classes, check_names, class_numbers, read_class_names
from arachne.data.labelled import LabelledData
from arachne.data.lazy.fit_memory import fit_memory
from arachne.data.preprocess import Preprocess
from arachne.data.readers.arrays import read_npy_folder, read_npz
from arachne.data.readers.coco import find_coco_file, read_coco
from arachne.data.readers.frames import is_frame, read_frame, read_frame_and_labels
from arachne.data.readers.images import read_image_folder
from arachne.data.readers.masks import find_masks, read_mask_folder
from arachne.data.readers.multi_file import files_of, join
from arachne.data.readers.objects import reader_for
from arachne.data.readers.parquet import read_parquet
from arachne.data.readers.raw import RawData
from arachne.data.readers.tables import read_csv
from arachne.data.readers.yolo import label_folder, read_yolo_folder
from arachne.data.unlabelled import read_unlabelled
from arachne.errors import DataError, UsageError
from arachne.io.reading import parse_errors_as, suggest_path
from arachne.model.lazy import MEMORY
from arachne.model.values import take
from arachne.tasks import Task

FILE_READERS = {
    ".npz": read_npz,
    ".csv": read_csv,
    ".tsv": read_csv,
    ".csv.gz": read_csv,
    ".parquet": read_parquet,
    ".json": read_coco,
}


def read_data(
    source: Any,
    *,
    classes: Classes = None,
    preprocess: str | Preprocess | None = None,
    n_classes: int | None = None,
    limit: int | None = None,
    memory: int = MEMORY,
    task: Task | None = None,
) -> LabelledData:
    """Read labelled inputs, check them and number their classes.

    Args:
        source: An npz, csv or parquet file; a directory with one directory of pictures per class, or with `x.npy` and
            `y.npy` (memory-mapped); pictures with boxes, as a YOLO folder (`images`, `labels`) or a COCO json; pictures
            with masks (`images`, `masks`, or `NAME_mask.png` beside `NAME.jpg`); several such files as a list, a
            pattern or separated by commas, or a directory of parquet files; `(x, y)`; a pandas or polars `DataFrame`,
            with its labels or beside them; a torch `DataLoader` or `Dataset`, a `tf.data.Dataset`, a Hugging Face
            `Dataset`; or `LabelledData`, which is returned as it is.
        classes: The model's class names in order: a list, comma-separated text, or a file with one per line.
        preprocess: The preprocessing of the inputs, as in `scale=1/255 layout=nchw`.
        n_classes: How many classes the model has; labels outside are refused.
        limit: Read at most this many rows, the first ones.
        memory: The most bytes of inputs to hold. Inputs in files that take more, before or after preprocessing, are
            read in pieces when they are needed; 0 reads all of them so.
        task: What the labels are for; one class for each input when None.

    Returns:
        The data; its `class_names` are the order of classes that was used, to be shown to the user.

    Raises:
        DataError: Something in the source cannot be used; one sentence says what.
        UsageError: The class names or the preprocessing cannot be parsed.
    """
    if limit is not None and limit < 1:
        raise UsageError(f"expected a limit above 0, got {limit}")
    steps = Preprocess.parse(preprocess)
    names = read_class_names(classes, n_classes)
    if task is not None and not task.NEEDS_LABELS:
        bare = source[0] if isinstance(source, tuple) and len(source) == 2 else source
        unlabelled = read_unlabelled(bare, preprocess=steps, limit=limit, memory=memory)
        own = source if isinstance(source, LabelledData) else unlabelled
        given = _join_steps(source, steps)
        names = names or own.class_names
        return replace(unlabelled, class_names=names, kept=own.kept, source=own.source, preprocessing=given)
    if isinstance(source, LabelledData):
        if not steps and names is None and n_classes is None and limit is None:
            return source
        found = _from_labelled(source, steps, limit)
    else:
        found = _read_source(source, steps, limit, memory)
    if task is None or task.ONE_LABEL:
        data = _number_classes(found, names, n_classes)
    else:
        data = _convert_labels(found, names, task)
    remaining = found.preprocess if found.preprocess is not None else steps
    if isinstance(source, LabelledData) and names is None:
        data = replace(data, names_assumed=source.names_assumed)
    inputs = as_inputs(remaining(data.inputs))
    given = _join_steps(source, steps)
    data = replace(data, inputs=inputs, source=_source_name(source), value_names=found.value_names, preprocessing=given)
    check_finite(data.inputs)
    return data


def _read_source(source: Any, preprocess: Preprocess, limit: int | None, memory: int) -> RawData:
    paths = files_of(source)
    if paths is not None:
        return _from_files(paths, preprocess, limit, memory)
    if isinstance(source, (str, Path)):
        try:
            return _fit_memory(_from_path(Path(source), preprocess, limit, memory), preprocess, memory)
        except OSError as error:
            raise DataError(f"cannot read '{source}': {error.strerror or error}") from error
    if is_frame(source):
        return read_frame(source, preprocess, limit)
    if isinstance(source, tuple) and len(source) == 2 and is_frame(source[0]):
        return read_frame_and_labels(source[0], source[1], preprocess, limit)
    if isinstance(source, tuple) and len(source) == 2:
        return _fit_memory(_from_pair(source[0], source[1], preprocess, limit), preprocess, memory)
    reader = reader_for(source)
    if reader is None:
        raise DataError(
            f"cannot read data from '{type(source).__module__}.{type(source).__qualname__}'; expected a path, (x, y) "
            "arrays, a DataFrame, a DataLoader, tf.data or a Hugging Face Dataset"
        )
    return reader(source, preprocess, limit)


def _fit_memory(found: RawData, preprocess: Preprocess, memory: int) -> RawData:
    """Make the inputs lazy if they take more memory than allowed."""
    remaining = found.preprocess if found.preprocess is not None else preprocess
    return replace(found, inputs=fit_memory(as_inputs(found.inputs), remaining, memory))


def _from_files(paths: Sequence[Path], preprocess: Preprocess, limit: int | None, memory: int) -> RawData:
    parts: list[tuple[Path, RawData]] = []
    rows = 0
    for path in paths:
        left = None if limit is None else limit - rows
        if left is None or left > 0:
            found = _read_source(path, preprocess, left, memory // len(paths))
            parts.append((path, found))
            rows += len(found.labels)
    return join(parts)


def _from_path(path: Path, preprocess: Preprocess, limit: int | None, memory: int) -> RawData:
    if os.path.isdir(path):
        if any(path.glob("*.npy")):
            return read_npy_folder(path, preprocess, limit, memory)
        if label_folder(path) is not None:
            return read_yolo_folder(path, preprocess, limit, memory)
        annotations = find_coco_file(path)
        if annotations is not None:
            return read_coco(annotations, preprocess, limit, memory)
        masks = find_masks(path)
        if masks is not None:
            return read_mask_folder(path, masks, preprocess, limit, memory)
        return read_image_folder(path, preprocess, limit, memory)
    if not os.path.exists(path):
        raise DataError(f"data '{path}' does not exist{suggest_path(path)}")
    for suffix, reader in FILE_READERS.items():
        if path.name.lower().endswith(suffix):
            return reader(path, preprocess, limit, memory)
    if path.suffix.lower() == ".npy":
        raise DataError(f"'{path}' holds inputs without labels; name the directory that holds x.npy and y.npy")
    raise DataError(f"cannot read data from '{path.name}'; known: {', '.join(FILE_READERS)}, a directory")


def _from_pair(inputs: Any, labels: Any, preprocess: Preprocess, limit: int | None) -> RawData:
    arrays = as_inputs(inputs)
    labels = as_inputs(labels) if hasattr(labels, "detach") else labels
    if limit is not None:
        arrays = take(arrays, slice(0, limit))
        labels = labels[:limit]
    return RawData(arrays, labels, preprocess=preprocess)


def _from_labelled(data: LabelledData, preprocess: Preprocess, limit: int | None) -> RawData:
    data = data if limit is None else data.take(range(min(limit, len(data))))
    return RawData(
        data.inputs, data.labels, data.class_names, None, data.names, data.columns, preprocess, data.value_names
    )


def _number_classes(found: RawData, names: tuple[str, ...] | None, n_classes: int | None) -> LabelledData:
    """Convert labels to class numbers, by name if the source has another order of classes than the model."""
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


def _convert_labels(found: RawData, names: tuple[str, ...] | None, task: Task) -> LabelledData:
    """Convert labels to those of a task; the user's class names win over the source's."""
    inputs, own = as_inputs(found.inputs), names or found.class_names
    with parse_errors_as("the labels", DataError):
        labels = task.convert_labels(found.labels, own, inputs)
    check_lengths(inputs, labels)
    return LabelledData(inputs, labels, own, found.names, found.columns)


def _join_steps(source: Any, steps: Preprocess) -> str:
    """Return all steps that the inputs of a source have gone through after these."""
    earlier = source.preprocessing if isinstance(source, LabelledData) else ""
    return f"{earlier} {steps}".strip()


def _source_name(source: Any) -> str | None:
    if isinstance(source, LabelledData):
        return source.source
    if isinstance(source, (str, Path)):
        return str(source)
    if files_of(source) is not None:
        return ",".join(map(str, source))
    return None if isinstance(source, tuple) else f"{type(source).__module__}.{type(source).__qualname__}"
