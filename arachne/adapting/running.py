"""Run a model in batches: their size, padding where it takes one size only, and the faults of a pass."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from arachne.errors import DataError, EnvironmentFaultError, is_out_of_memory
from arachne.io.reading import error_text
from arachne.model.values import Array, Inputs, batches, count, take

MAX_BATCH_ROWS = 1024
"""The largest number of inputs in one batch."""


class BatchRunner:
    """A model that runs on batches; the `Runner` of every adapter is one.

    Attributes:
        fixed: The only batch size the model takes, if there is one.
        rows: How many inputs go into one batch.
    """

    fixed: int | None = None
    rows: int = MAX_BATCH_ROWS

    def halve(self) -> int | None:
        """Halve the batch size and return it; None if it is already minimal."""
        if self.fixed or self.rows <= 1:
            return None
        self.rows //= 2
        return self.rows

    def fit_rows(self, bytes_per_row: float, allowed: float) -> None:
        """Choose the batch size by the memory that the intermediate results of one input take."""
        if not self.fixed:
            self.rows = int(max(1, min(MAX_BATCH_ROWS, allowed // max(bytes_per_row, 1))))

    def row_batches(self, n: int, rows: int | None = None) -> list[slice]:
        """Return the rows of every batch of `n` inputs; one empty batch for no inputs."""
        return list(batches(n, rows or self.rows)) or [slice(0, 0)]

    def split_batches(self, inputs: Inputs, rows: int | None = None) -> Iterator[Inputs]:
        """Yield inputs in batches; one empty batch for no inputs."""
        return (take(inputs, part) for part in self.row_batches(count(inputs), rows))

    def padded_size(self, n: int) -> int:
        """Return how many rows the model is given for `n` inputs: at least one, since many fail on empty tensors."""
        return self.fixed or max(n, 1)

    def pad(self, array: Array) -> Array:
        """Add rows of zeros up to the size that the model is given; they are cut off again behind it."""
        return pad_rows(array, max(self.padded_size(len(array)), len(array)))


def pad_rows(array: Array, size: int) -> Array:
    """Add rows of zeros to an array, up to a size."""
    if len(array) == size:
        return array
    return np.concatenate([array, np.zeros((size - len(array), *array.shape[1:]), array.dtype)])


def translate_error(error: Exception, sentence: str) -> DataError | EnvironmentFaultError:
    """Turn an error of the framework into a fault of the inputs, or of memory, with its first line as the reason."""
    if is_out_of_memory(error):
        return EnvironmentFaultError(f"not enough memory to run the model: {error_text(error)}")
    return DataError(f"{sentence}: {error_text(error)}")
