"""Where a parameter is stored, and its conversion to the canonical layout and back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from arachne.model.values import Array

Move = tuple[str, Any]
"""One step from a stored tensor to its canonical layout: `transpose`, `reshape`, `take`, `rows` or `blocks`."""


@dataclass(frozen=True)
class ParameterSlice:
    """A parameter as a stored tensor, or a part of one, with the moves to the canonical layout."""

    name: str
    moves: tuple[Move, ...] = ()

    @property
    def is_part(self) -> bool:
        """Whether the tensor holds other parameters too: directions of a recurrent layer, projections of attention."""
        return any(kind in ("take", "rows") for kind, _ in self.moves)

    def then(self, *moves: Move) -> ParameterSlice:
        """Append moves."""
        return ParameterSlice(self.name, (*self.moves, *moves))

    def view(self, stored: Array) -> Array:
        """Return the canonical layout, as a view of the stored tensor if the moves allow one."""
        for kind, value in self.moves:
            stored = _move(stored, kind, value)
        return stored

    def put(self, stored: Array, values: Array) -> None:
        """Write canonical values into a stored tensor."""
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
