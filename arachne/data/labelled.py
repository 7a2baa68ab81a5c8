"""Labelled inputs, independent of the format they were read from."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from arachne.data.lazy.memmap import gather
from arachne.errors import DataError
from arachne.model.values import Array, Inputs, blocks, by_name, count_bytes, map_arrays
from arachne.plugins.drawing import Drawable
from arachne.text import pluralise

HASH_BATCH = 1024
"""Rows hashed at a time, so that memory-mapped data is never in memory as a whole."""

TEXT_COLUMNS = ("text", "sentence", "tweet", "review", "title", "question")
"""The names that data sets give to columns of texts."""

MAX_NAME_LENGTH = 1000
"""Characters of the name of a class; tables, pages and records repeat it."""

MAX_NAMED = 10
"""The most classes named on one line."""


@dataclass(frozen=True, eq=False)
class LabelledData(Drawable):
    """Inputs with the class each of them should get.

    Attributes:
        inputs: One array `(n, ...)`, or a mapping of such arrays.
        labels: True classes, int64 `(n,)`; of another task than a single label `(n, ...)`, floats where some are not
            whole numbers.
        class_names: The name of every class in order, if known.
        names: The file name of every row, if there is one.
        columns: Metadata, one array `(n,)` by column name.
        source: The path or object the data was read from.
        names_assumed: Whether the order of the class names comes from the data and was not given by the user. It is
            right only for a model with the same number of classes and no names of its own; `run_checked` checks
            that.
        kept: Which inputs nobody has labelled and the model must go on reading as it does, bool `(n,)`; None if there
            are none. Their labels are filled in when the model has run.
        value_names: The names of an input's values, as the columns of a table have them; None if they have none.
        preprocessing: The steps that the inputs went through when they were read, as text.
    """

    inputs: Inputs
    labels: Array
    class_names: tuple[str, ...] | None = None
    names: tuple[str, ...] | None = None
    columns: Mapping[str, Array] = field(default_factory=dict)
    source: str | None = None
    names_assumed: bool = False
    kept: Array | None = None
    value_names: tuple[str, ...] | None = None
    preprocessing: str = ""

    def __post_init__(self) -> None:
        if self.value_names is not None and not self._names_values(self.value_names):
            object.__setattr__(self, "value_names", None)  # preprocessing made other values of the columns
        arrays = self.inputs if isinstance(self.inputs, Mapping) else {"x": self.inputs}
        if not arrays:
            raise DataError("expected at least one input array, got none")
        labels = np.asarray(self.labels)
        if not labels.ndim or labels.dtype.kind not in "biuf":
            raise DataError("expected one class number per input as labels; names and other forms go through read_data")
        object.__setattr__(self, "labels", labels.astype(np.int64 if _are_whole(labels) else np.float64))
        for what, array in [*arrays.items(), *self.columns.items()]:
            if len(array) != len(self.labels):
                raise DataError(
                    f"expected one label per input, got {len(array)} rows in '{what}' and {len(self)} labels"
                )
        longest = max(self.class_names or (), key=len, default="")
        if len(longest) > MAX_NAME_LENGTH:
            raise DataError(
                f"the class name '{longest[:40]}…' has {len(longest):,} characters, more than {MAX_NAME_LENGTH:,}"
            )
        if self.names is not None and len(self.names) != len(self):
            raise DataError(f"expected one file name per input, got {len(self.names)} names and {len(self)} labels")

    def __len__(self) -> int:
        return len(self.labels)

    def _names_values(self, names: tuple[str, ...]) -> bool:
        return not isinstance(self.inputs, Mapping) and tuple(self.inputs.shape[1:]) == (len(names),)

    def __str__(self) -> str:
        """`899 inputs (1, 8, 8), 10 classes: 0, 1, …`, instead of pages of numbers."""
        shapes = ", ".join(f"{name} {tuple(one.shape[1:])}".strip() for name, one in by_name(self.inputs).items())
        text = f"{pluralise(len(self), 'input')} {shapes}, "
        if self.class_names is None:
            return text + f"{pluralise(len(np.unique(self.labels)), 'different label')}"
        names = ", ".join(self.class_names[:MAX_NAMED]) + (", …" if len(self.class_names) > MAX_NAMED else "")
        return text + f"{pluralise(len(self.class_names), 'class', 'classes')}: {names}"

    @property
    def headline(self) -> str:
        """The text itself."""
        return str(self)

    def take(self, rows: Array | Sequence[int]) -> LabelledData:
        """Select rows `(k,)`, in the order given."""
        chosen = np.asarray(rows, dtype=np.int64)
        if len(chosen) == len(self) and np.array_equal(chosen, np.arange(len(self))):
            return self  # a copy of everything would bring memory-mapped data into memory
        return LabelledData(
            inputs=map_arrays(lambda array: gather(array, chosen), self.inputs),
            labels=self.labels[chosen],
            class_names=self.class_names,
            names=None if self.names is None else tuple(self.names[row] for row in chosen),
            columns={name: column[chosen] for name, column in self.columns.items()},
            source=self.source,
            names_assumed=self.names_assumed,
            kept=None if self.kept is None else self.kept[chosen],
            value_names=self.value_names,
            preprocessing=self.preprocessing,
        )

    @property
    def nbytes(self) -> int:
        """The bytes of all inputs."""
        return count_bytes(self.inputs)

    def sha256(self) -> str:
        """Hash the content of inputs and labels; names and the source do not count."""
        return self._sha256

    @cached_property
    def _sha256(self) -> str:
        digest = hashlib.sha256()
        for name, array in sorted({**by_name(self.inputs), "\0labels": self.labels}.items()):
            digest.update(f"{name}\0{array.dtype.str}\0{array.shape}\0".encode())
            for rows in blocks(array, HASH_BATCH):
                digest.update(np.ascontiguousarray(array[rows]).tobytes())
        return digest.hexdigest()

    @cached_property
    def hashes(self) -> tuple[bytes, ...]:
        """The hash of each input's content, by `row_hashes`."""
        return tuple(row_hashes(self.inputs))

    @property
    def texts(self) -> Array | None:
        """The text of each input `(n,)`, from a column of one of `TEXT_COLUMNS`; None if the data has none."""
        return next((self.columns[column] for column in TEXT_COLUMNS if column in self.columns), None)

    def class_name(self, label: int) -> str:
        """Return the name of a class, or its number as text."""
        if self.class_names is not None and 0 <= label < len(self.class_names):
            return self.class_names[label]
        return str(int(label))


def number_alike(data: LabelledData, other: LabelledData | None) -> LabelledData | None:
    """Return other data of the same model with labels numbered as in `data`, by the names that both have found.

    A file that holds some of the classes only, as inputs that must never break may, numbers these from 0.
    """
    if other is None or other.class_names in (None, data.class_names) or not other.names_assumed:
        return other
    if data.class_names is None or not set(other.class_names or ()) <= set(data.class_names) or other.labels.ndim != 1:
        return other
    numbers = np.array([data.class_names.index(name) for name in other.class_names or ()])
    labels = numbers[other.labels]
    return replace(other, labels=labels, class_names=data.class_names, names_assumed=data.names_assumed)


def _are_whole(labels: Array) -> bool:
    return labels.dtype.kind in "biu" or bool((labels == np.round(labels)).all())


def row_hashes(inputs: Inputs) -> Iterator[bytes]:
    """Hash the content of each input (dtype, shape and bytes; labels do not count)."""
    arrays = by_name(inputs)
    header = "".join(
        f"{name}\0{arrays[name].dtype.str}\0{arrays[name].shape[1:]}\0" for name in sorted(arrays)
    ).encode()
    for rows in blocks(inputs, HASH_BATCH):
        chunk = [np.ascontiguousarray(arrays[name][rows]) for name in sorted(arrays)]
        for row in range(len(chunk[0])):
            yield hashlib.blake2b(header + b"".join(array[row].tobytes() for array in chunk), digest_size=16).digest()
