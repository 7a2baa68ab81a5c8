"""ParameterSlice: the selected weights that lie in one parameter."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from arachne.model.values import Array
from arachne.text import Brief
from arachne.weights.storage import Storage


@dataclass(frozen=True, eq=False)
class ParameterSlice(Brief):
    """The selected weights that lie in one parameter.

    Attributes:
        layer: The layer.
        parameter: The parameter.
        shape: The parameter's canonical shape.
        storage: What the parameter can hold.
        numbers: Which elements of a candidate vector they are.
        flat: Where they lie in the flattened parameter, int64, ascending.
        mean: Mean of all weights of the parameter, selected or not.
        deviation: Standard deviation of all its weights.
        lowest: The smallest of its weights.
        highest: The largest of its weights.
    """

    layer: str
    parameter: str
    shape: tuple[int, ...]
    storage: Storage
    numbers: slice
    flat: Array
    mean: float = np.nan
    deviation: float = np.nan
    lowest: float = np.nan
    highest: float = np.nan

    def __len__(self) -> int:
        return len(self.flat)

    @property
    def key(self) -> tuple[str, str]:
        """Layer and parameter."""
        return self.layer, self.parameter

    @cached_property
    def index(self) -> tuple[Array, ...]:
        """Where they lie in the parameter: one array of numbers for each of its axes."""
        return unravel(self.flat, self.shape)

    @property
    def rows(self) -> Array:
        """Where they lie in the parameter: one row of numbers for each weight, int64 `(k, axes)`."""
        return np.array(self.index, np.int64).reshape(len(self.shape), len(self)).T

    @cached_property
    def element_storage(self) -> Storage:
        """The storage of the selected weights alone."""
        return self.storage.at(self.flat, self.shape)


def unravel(flat: Array, shape: tuple[int, ...]) -> tuple[Array, ...]:
    """Turn positions in a flattened array into one array of numbers for each axis; none for a single number."""
    return np.unravel_index(flat, shape) if shape else ()
