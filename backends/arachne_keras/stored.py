"""Where a parameter is stored, and how it is brought from there into the canonical layout and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from arachne.values import Array
from arachne_keras.autodiff import stored_array


@dataclass(frozen=True)
class Layout:
    """From a stored array to the canonical one: axes turned, then reshaped, then blocks of rows put in order.

    Attributes:
        axes: The stored axes in canonical order.
        turned: The stored shape in that order.
        shape: The canonical shape.
        gates: For each canonical block of rows, the stored block it is (a GRU stores z r n, we say r z n).
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

    def canonical(self, values: Array) -> Array:
        """A fresh array in canonical layout."""
        turned = values.transpose(self.axes).reshape(self.shape)
        return np.array(self._blocks(turned, self.gates), order="C")

    def stored(self, values: Array) -> Array:
        """A fresh array as Keras stores it."""
        back = [self.gates.index(gate) for gate in range(len(self.gates))]
        turned = self._blocks(values, back).reshape(self.turned)
        return np.array(turned.transpose(np.argsort(self.axes)), order="C")

    def _blocks(self, values: Array, order: Sequence[int]) -> Array:
        if len(order) == 1:
            return values
        blocks = np.split(values, len(order))
        return np.concatenate([blocks[number] for number in order])


@dataclass(frozen=True)
class Stored:
    """Where a parameter is stored: a Keras variable, or one row of it (a GRU has both its biases in one).

    Attributes:
        variable: The variable.
        layout: How the canonical layout is read from it, or from the row.
        row: The row, where the parameter is only one.
    """

    variable: Any
    layout: Layout
    row: int | None = None

    def canonical(self, values: Array) -> Array:
        """The parameter out of an array of the variable's shape."""
        return self.layout.canonical(values if self.row is None else values[self.row])

    def put(self, whole: Array, values: Array) -> Array:
        """The variable's array with this parameter replaced."""
        if self.row is None:
            return self.layout.stored(values).astype(whole.dtype, copy=False)
        changed = whole.copy()
        changed[self.row] = self.layout.stored(values)
        return changed

    def get(self) -> Array:
        """The parameter as the model has it now."""
        return self.canonical(stored_array(self.variable))

    def set(self, values: Array) -> None:
        """Put other values into the model."""
        self.variable.assign(self.put(stored_array(self.variable), values))
