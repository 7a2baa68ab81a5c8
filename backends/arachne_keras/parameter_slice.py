"""Where a parameter is stored, and its conversion to the canonical layout and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from arachne.model.values import Array
from arachne_keras.autodiff import stored_array


@dataclass(frozen=True)
class Layout:
    """Conversion of a stored array to the canonical one: transpose, reshape, then reorder blocks of rows.

    Attributes:
        axes: The stored axes in canonical order.
        turned: The stored shape in that order.
        shape: The canonical shape.
        gates: The stored block for each canonical block of rows (a GRU stores z r n, the contract has r z n).
    """

    axes: tuple[int, ...]
    turned: tuple[int, ...]
    shape: tuple[int, ...]
    gates: tuple[int, ...] = (0,)

    @classmethod
    def of(
        cls, stored: Sequence[int], axes: Sequence[int], shape: Sequence[int] | None = None, gates: Sequence[int] = (0,)
    ) -> Layout:
        """The layout of a stored shape; `shape` is the turned one by default."""
        turned = tuple(stored[axis] for axis in axes)
        return cls(tuple(axes), turned, turned if shape is None else tuple(shape), tuple(gates))

    def to_canonical(self, values: Array) -> Array:
        """Return a fresh array in the canonical layout."""
        turned = values.transpose(self.axes).reshape(self.shape)
        return np.array(self._blocks(turned, self.gates), order="C")

    def to_stored(self, values: Array) -> Array:
        """Return a fresh array in Keras' layout."""
        back = [self.gates.index(gate) for gate in range(len(self.gates))]
        turned = self._blocks(values, back).reshape(self.turned)
        return np.array(turned.transpose(np.argsort(self.axes)), order="C")

    def _blocks(self, values: Array, order: Sequence[int]) -> Array:
        if len(order) == 1:
            return values
        blocks = np.split(values, len(order))
        return np.concatenate([blocks[number] for number in order])


@dataclass(frozen=True)
class ParameterSlice:
    """A parameter as a Keras variable, or as one row of it (a GRU has both its biases in one variable).

    Attributes:
        variable: The variable.
        layout: How the canonical layout is read from it, or from the row.
        row: The row, if the parameter is only one row.
    """

    variable: Any
    layout: Layout
    row: int | None = None

    def to_canonical(self, values: Array) -> Array:
        """The parameter out of an array of the variable's shape."""
        return self.layout.to_canonical(values if self.row is None else values[self.row])

    def put(self, whole: Array, values: Array) -> Array:
        """The variable's array with this parameter replaced."""
        if self.row is None:
            return self.layout.to_stored(values).astype(whole.dtype, copy=False)
        changed = whole.copy()
        changed[self.row] = self.layout.to_stored(values)
        return changed

    def get(self) -> Array:
        """The parameter as the model has it now."""
        return self.to_canonical(stored_array(self.variable))

    def set(self, values: Array) -> None:
        """Put other values into the model."""
        self.variable.assign(self.put(stored_array(self.variable), values))
