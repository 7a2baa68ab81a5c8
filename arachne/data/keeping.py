"""Inputs to keep as they are: nobody has labelled them, and the model must go on deciding as it does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from arachne.data.labelled import LabelledData
from arachne.data.unlabelled import UNKNOWN
from arachne.errors import DataError
from arachne.model.lazy import concatenate
from arachne.model.values import Array, Inputs
from arachne.tasks import Task


def join_kept(data: LabelledData, keep: LabelledData) -> LabelledData:
    """Return data with inputs to keep as they are behind it; their labels come from the model, by `label_kept`.

    Raises:
        DataError: The inputs are of another kind or shape.
    """
    labels = np.full((len(keep), *data.labels.shape[1:]), UNKNOWN, data.labels.dtype)
    names = None
    if data.names is not None:
        names = (*data.names, *(keep.names or [f"kept row {row}" for row in range(len(keep))]))
    columns = {
        name: np.concatenate([np.asarray(column).astype(str), _column(keep, name)])
        for name, column in data.columns.items()
    }
    return replace(
        data,
        inputs=_join(data.inputs, keep.inputs),
        labels=np.concatenate([data.labels, labels]),
        names=names,
        columns=columns,
        kept=np.arange(len(data) + len(keep)) >= len(data),
    )


def attach_kept(
    data: LabelledData, holdout: LabelledData | None, keep: LabelledData | None
) -> tuple[LabelledData, LabelledData | None]:
    """Attach inputs to keep as they are to the data, or every second one to the data and the others to the holdout.

    Inputs that are there already, or stand twice, are left out.
    """
    if keep is None:
        return data, holdout
    known = {digest for one in (data, holdout) if one is not None for digest in one.hashes}
    firsts = {digest: row for row, digest in reversed([*enumerate(keep.hashes)])}
    fresh = sorted(row for digest, row in firsts.items() if digest not in known)
    if not fresh:
        raise DataError(f"all {len(keep)} inputs to keep as they are stand in the data already; give others")
    if holdout is None:
        return join_kept(data, _take(keep, fresh)), None
    if len(fresh) < 2:
        raise DataError("one input to keep as it is cannot be both seen and held out; give more")
    return join_kept(data, _take(keep, fresh[::2])), join_kept(holdout, _take(keep, fresh[1::2]))


def without_labels(data: LabelledData) -> LabelledData:
    """Return data whose labels are all unknown, as the inputs of a rule are."""
    return data if (data.labels == UNKNOWN).all() else replace(data, labels=np.full(len(data), UNKNOWN))


def label_kept(data: LabelledData, outputs: Array, task: Task) -> LabelledData:
    """Label inputs that are to stay as they are with the model's own decisions, from its outputs `(n, ...)`."""
    if data.kept is None or not data.kept.any():
        return data
    decided = task.label_as_decided(outputs[data.kept])
    labels = data.labels.astype(np.result_type(data.labels, decided))
    if labels.ndim == 3:  # as many label rows for each picture as the one with the most has
        labels, decided = (_pad_rows(own, max(labels.shape[1], decided.shape[1])) for own in (labels, decided))
    labels[data.kept] = decided
    return replace(data, labels=labels)


def _pad_rows(labels: Array, rows: int) -> Array:
    return np.pad(labels, ((0, 0), (0, rows - labels.shape[1]), (0, 0)))


def _take(keep: LabelledData, rows: Sequence[int]) -> LabelledData:
    return keep.take(np.asarray(rows, np.int64))


def _column(keep: LabelledData, name: str) -> Array:
    if name in keep.columns:
        return np.asarray(keep.columns[name]).astype(str)
    return np.full(len(keep), "", "<U1")


def _join(first: Inputs, second: Inputs) -> Inputs:
    if isinstance(first, Mapping):
        if not isinstance(second, Mapping) or set(first) != set(second):
            raise DataError(f"inputs to keep as they are need the arrays {', '.join(first)}, as the data has")
        return {name: _join_arrays(array, second[name]) for name, array in first.items()}
    if isinstance(second, Mapping):
        raise DataError("inputs to keep as they are must be one array, as the data is")
    return _join_arrays(first, second)


def _join_arrays(first: Array, second: Array) -> Array:
    if first.shape[1:] != second.shape[1:]:
        raise DataError(
            f"inputs to keep as they are must have the shape {first.shape[1:]} of the data's, got {second.shape[1:]}"
        )
    return concatenate(first, second)
