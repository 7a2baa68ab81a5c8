"""Convert labels of any kind to class numbers.

Numbers are taken as they are. Names need an order: the user gives it, or the source has one, or the names are sorted.
Sorting is right only if there are exactly as many names as the model has classes; that is checked as soon as the model
is known.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from arachne.errors import DataError, UsageError, did_you_mean
from arachne.io.reading import parse_errors_as, read_text
from arachne.model.values import Array
from arachne.text import pluralise

MAX_CLASS_NUMBER = 1 << 40
"""The largest number that can be a class."""

MAX_FILE_BYTES = 16 << 20
"""The largest file of class names."""

TASKS = {
    2: "multilabel if each column is a label, tokens if each token has one",
    3: "segmentation if each pixel has one",
}
"""Tasks that labels of so many axes may belong to."""

Classes = str | Path | Sequence[str] | None
"""Class names in order: a list, comma-separated text, or a file with one per line."""


def read_class_names(classes: Classes, n_classes: int | None = None) -> tuple[str, ...] | None:
    """Read the class names in order; None if none are given.

    Raises:
        UsageError: No such file, a name given twice, or not one per class of the model.
    """
    if classes is None:
        return None
    names = _from_text(classes) if isinstance(classes, (str, Path)) else tuple(map(str, classes))
    doubled = [name for name, times in Counter(names).items() if times > 1]
    if doubled:
        raise UsageError(f"the class name '{min(doubled)}' is given twice")
    if not names or "" in names:
        raise UsageError("expected class names, got an empty one" if names else "expected class names, got none")
    if n_classes is not None and len(names) != n_classes:
        raise UsageError(f"expected one name for each of the model's {n_classes} classes, got {len(names)}")
    return names


def _from_text(text: str | Path) -> tuple[str, ...]:
    path = Path(text)
    if os.path.exists(path):  # a long list of names is no path, which Path.exists() would raise for
        if isinstance(text, str) and "," in text and os.sep not in text:  # somebody may have put that file here
            raise UsageError(
                f"'{text}' is a list of class names, and a file here has that name; for it, type './{text}'"
            )
        content = read_text(path, "list of class names", MAX_FILE_BYTES)
        return tuple(line.strip() for line in content.splitlines() if line.strip())
    text = str(text)
    if "," not in text:
        raise UsageError(f"'{text}' is neither a file with class names nor a list of names separated by commas")
    return tuple(name.strip() for name in text.split(","))


def class_numbers(
    labels: Any,
    class_names: tuple[str, ...] | None,
    *,
    n_classes: int | None = None,
    known_names: Sequence[str] | None = None,
) -> tuple[Array, tuple[str, ...] | None, bool]:
    """Return class numbers, int64 `(n,)`, the class names they stand for, and whether the names' order is only assumed.

    Args:
        labels: Numbers, names, or one-hot rows `(n, classes)`.
        class_names: The names in order, if they are known.
        n_classes: How many classes the model has, if that is known.
        known_names: Names of classes that may have no inputs.

    Raises:
        DataError: Labels that are neither numbers nor known names, or outside the model's classes.
    """
    values = _one_per_row(labels)
    given = class_names
    if values.dtype.kind == "S":
        with parse_errors_as("the labels", DataError):
            values = np.char.decode(values, "utf-8")
    if values.dtype.kind == "U":
        numbers, class_names = _from_names(values, class_names, n_classes, known_names)
    else:
        numbers = _whole_numbers(values)
    limit = n_classes if n_classes is not None else len(class_names) if class_names is not None else None
    outside = np.flatnonzero((numbers < 0) | (numbers >= (limit if limit is not None else np.inf)))
    if len(outside):
        row = int(outside[0])
        allowed = "0 and up" if limit is None else f"0 to {limit - 1}"
        why = "" if n_classes is not None or class_names is None else f", because {limit} class names are given"
        raise DataError(f"row {row} has the label {numbers[row]}, expected class numbers from {allowed}{why}")
    return numbers, class_names, class_names != given


def check_names(class_names: Sequence[str], n_classes: int, *, assumed: bool) -> None:
    """Refuse class names that are not one for each class of the model.

    Raises:
        DataError: Another number of names; where their order was only assumed, it asks for the names.
    """
    if len(class_names) == n_classes:
        return
    if not assumed:
        raise DataError(f"expected one name for each of the model's {n_classes} classes, got {len(class_names)}")
    shown = ", ".join(class_names[:5]) + (", …" if len(class_names) > 5 else "")
    raise DataError(
        f"found {pluralise(len(class_names), 'class name')} ({shown}), but the model has {n_classes} classes; "
        "give all names in order",
        argument="classes",
    )


def _one_per_row(labels: Any) -> Array:
    try:
        values = np.asarray(labels)
    except ValueError as error:
        raise DataError("the labels are ragged: expected one per input") from error
    if values.dtype.kind == "O":
        kinds = {type(value).__name__ for value in values.ravel().tolist()}
        if kinds == {"str"}:
            values = values.astype(str)
        else:
            raise DataError(f"expected labels that are numbers or names, got {' and '.join(sorted(kinds))}")
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim == 2 and _is_one_hot(values):
        values = values.argmax(axis=1)
    if values.ndim != 1:
        raise DataError(
            f"expected one label per input, got labels of shape {values.shape}"
            + (f"; name the task that reads them, {TASKS[values.ndim]}" if values.ndim in TASKS else ""),
            argument="task",
        )
    if values.dtype.kind not in "biufUS":
        raise DataError(f"expected labels that are numbers or names, got {values.dtype}")
    return values


def _is_one_hot(values: Array) -> bool:
    if values.dtype.kind not in "biuf" or not values.size:
        return False
    return bool(np.isin(values, (0, 1)).all() and (values.sum(axis=1) == 1).all())


def _whole_numbers(values: Array) -> Array:
    if values.dtype.kind == "f":
        broken = np.flatnonzero(~np.isfinite(values) | (values != np.round(values)) | (np.abs(values) >= 2**53))
        if len(broken):
            row = int(broken[0])
            raise DataError(f"row {row} has the label {values[row]:g}, expected a whole number or a class name")
    if values.dtype.kind == "u" and (values >= MAX_CLASS_NUMBER).any():
        row = int(np.flatnonzero(values >= MAX_CLASS_NUMBER)[0])
        raise DataError(f"row {row} has the label {values[row]}, expected the number of a class")
    return values.astype(np.int64)


def _from_names(
    labels: Array, class_names: tuple[str, ...] | None, n_classes: int | None, known_names: Sequence[str] | None
) -> tuple[Array, tuple[str, ...] | None]:
    labels = np.char.strip(labels)
    found = sorted({*labels.tolist(), *(known_names or ())})
    strangers = [name for name in found if class_names is None or name not in class_names]
    if strangers and all(_is_number(name) for name in found):
        return np.array([_number(name) for name in labels.tolist()], dtype=np.int64), class_names
    if class_names is None:
        class_names = _sorted_names(found, n_classes)
    elif strangers:
        known = _unknown_name_message(labels, strangers[0], class_names)
        if len(strangers) < len(found) or len(found) != len(class_names):
            raise DataError(known)
        raise DataError(f"{known}; give the names of the data in this order", argument="classes")
    order = {name: number for number, name in enumerate(class_names)}
    return np.array([order[name] for name in labels.tolist()], dtype=np.int64), class_names


def _number(text: str) -> int:
    whole = text.partition(".")[0]
    if len(whole.lstrip("-").lstrip("0")) > len(str(MAX_CLASS_NUMBER)):
        raise DataError(f"the label {whole[:20]}… is the number of no class")
    return int(whole)


def _is_number(text: str) -> bool:
    """Whether a text is a whole number; tables write them as `3.0` too."""
    whole, _, rest = text.removeprefix("-").partition(".")
    return whole.isascii() and whole.isdecimal() and not rest.strip("0")


def _sorted_names(found: list[str], n_classes: int | None) -> tuple[str, ...]:
    """Return the names in sorted order; refuse them unless there is exactly one for each class of the model."""
    numbers = [name for name in found if _is_number(name)]
    if numbers:
        raise DataError(
            f"the labels are partly numbers ('{numbers[0]}') and partly names; give all names in order",
            argument="classes",
        )
    if n_classes is not None:
        check_names(found, n_classes, assumed=True)
    return tuple(found)


def _unknown_name_message(labels: Array, name: str, class_names: tuple[str, ...]) -> str:
    rows = np.flatnonzero(labels == name)
    where = f"row {rows[0]} has" if len(rows) else "there is"
    return f"{where} the class '{name}', which is not among the class names{did_you_mean(name, class_names)}"
