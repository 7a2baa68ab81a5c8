"""Where a parameter is stored, and its conversion to the canonical layout and back."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from arachne.model.values import Array
from arachne.weights.storage import IntegerGrid

Move = tuple[str, Any]
"""One step from a stored tensor to its canonical layout: `transpose`, `reshape`, `take`, `rows` or `blocks`."""


@dataclass(frozen=True)
class ParameterSlice:
    """A parameter as a stored tensor, or a part of one, with the moves to the canonical layout.

    Attributes:
        name: The stored tensor.
        moves: The moves.
        grid: The values that its whole numbers stand for, in the stored layout; None where it holds the values.
    """

    name: str
    moves: tuple[Move, ...] = ()
    grid: IntegerGrid | None = field(default=None, compare=False, repr=False)

    @property
    def is_part(self) -> bool:
        """Whether the tensor holds other parameters too: directions of a recurrent layer, projections of attention."""
        return any(kind in ("take", "rows") for kind, _ in self.moves)

    def then(self, *moves: Move) -> ParameterSlice:
        """Append moves."""
        return replace(self, moves=(*self.moves, *moves))

    def view(self, stored: Array) -> Array:
        """Return the canonical layout, as a view of the stored tensor if the moves allow one."""
        for kind, value in self.moves:
            stored = _move(stored, kind, value)
        return stored

    def canonical_grid(self, shape: tuple[int, ...]) -> IntegerGrid | None:
        """Return the grid in the canonical layout of a stored tensor of this shape."""
        if self.grid is None:
            return None
        scale, zero = (self.view(np.broadcast_to(whole, shape)) for whole in (self.grid.scale, self.grid.zero))
        return IntegerGrid(scale, zero, self.grid.low, self.grid.high, self.grid.name)

    def read(self, stored: Array) -> Array:
        """Return the canonical values of a stored tensor."""
        grid = self.canonical_grid(stored.shape)
        return self.view(stored) if grid is None else grid.to_float(self.view(stored))

    def write(self, stored: Array, values: Array) -> None:
        """Write canonical values into a stored tensor, rounded to what it can hold."""
        grid = self.canonical_grid(stored.shape)
        self.put(stored, values if grid is None else grid.to_stored(values))

    def write_some(self, stored: Array, values: Array, places: Array, grid: IntegerGrid) -> bool:
        """Write some of the canonical values, by their flat places; False if the layout does not allow it."""
        view = self.view(stored)
        if not np.may_share_memory(view, stored):
            return False
        chosen = np.unravel_index(places, view.shape)
        view[chosen] = grid.at(places, view.shape).to_stored(values[chosen])
        return True

    def put(self, stored: Array, values: Array) -> None:
        """Write numbers in the canonical layout into a stored tensor."""
        view = self.view(stored)
        if np.may_share_memory(view, stored):
            view[...] = values
        else:
            stored.reshape(-1)[self.positions(stored.shape)] = values

    def positions(self, shape: tuple[int, ...]) -> Array:
        """The flat position in the stored tensor of every canonical element."""
        return self.view(np.arange(int(np.prod(shape, dtype=np.int64))).reshape(shape))


def _move(array: Array, kind: str, value: Any) -> Array:
    match kind:
        case "transpose":
            return array.transpose(value)
        case "reshape":
            return array.reshape(value)
        case "take":
            return np.asarray(array[value])
        case "rows":
            return array[value[0] : value[1]]
        case "blocks":
            if list(value) == sorted(value):
                return array
            blocks = array.reshape(len(value), -1, *array.shape[1:])[list(value)]
            return blocks.reshape(array.shape)
    raise ValueError(f"no move called '{kind}'")
