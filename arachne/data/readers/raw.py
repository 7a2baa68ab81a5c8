"""The result of a reader, before labels are converted to numbers and anything is checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from arachne.data.preprocess import Preprocess
from arachne.model.values import Array, Inputs

LABEL_NAMES = ("y", "label", "labels")
"""Names of the labels, in files and in the batches of a loader."""

LABEL_PREFIXES = ("label_", "y_")
"""A table without such a column may have several whose names start like this: one for each label, there or not."""

COLUMN_PREFIXES = ("group_", "meta_")
"""An array or column whose name starts like this is metadata; the prefix is dropped."""


@dataclass(frozen=True, eq=False)
class RawData:
    """The content of a source.

    Attributes:
        inputs: One array or anything that makes one, or a mapping of such.
        labels: Class numbers or names `(n,)`; `(n, ...)` where an input has several labels.
        class_names: The names in order, if the source defines it.
        known_names: Names that occur as labels, including those without inputs (an empty directory).
        names: File names `(n,)`.
        columns: Metadata `(n,)`.
        preprocess: The part of the preprocessing that is still to be done.
        value_names: The names of the columns that one array of inputs was made of.
    """

    inputs: Inputs | Mapping[str, Any] | Any
    labels: Any
    class_names: tuple[str, ...] | None = None
    known_names: Sequence[str] | None = None
    names: tuple[str, ...] | None = None
    columns: Mapping[str, Array] = field(default_factory=dict)
    preprocess: Preprocess | None = None
    value_names: tuple[str, ...] | None = None


def label_columns(names: Iterable[str]) -> dict[str, str]:
    """Return the columns of a table that hold one label each, with the names of the labels."""
    return {
        name: name[len(prefix) :]
        for name in names
        for prefix in LABEL_PREFIXES
        if name.startswith(prefix) and len(name) > len(prefix)
    }


def column_name(name: str) -> str | None:
    """Return the name of the metadata column that an array holds; None if it is not metadata."""
    for prefix in COLUMN_PREFIXES:
        if name.startswith(prefix) and len(name) > len(prefix):
            return name[len(prefix) :]
    return None
