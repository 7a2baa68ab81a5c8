"""Where a parameter is stored: a tensor of the model or some of its rows, and its orientation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from torch import Tensor

from arachne.model.values import Array

M = TypeVar("M", Tensor, Array)


@dataclass(frozen=True)
class ParameterSlice:
    """A parameter as a tensor of the model, or as some rows of one.

    Attributes:
        name: The tensor's name in the state dict.
        transposed: Whether the canonical layout is the transpose of what is stored (`x @ weight`).
        rows: The rows it takes of a tensor that holds several parameters.
    """

    name: str
    transposed: bool = False
    rows: tuple[int, int] | None = None

    def view(self, stored: M) -> M:
        """Return a view in the canonical layout; writing to it writes to the tensor."""
        part = stored if self.rows is None else stored[self.rows[0] : self.rows[1]]
        return part.T if self.transposed else part
