"""Inputs a cause is estimated from: errors that have it, and right inputs of the same classes that do not."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from arachne.causes.features import layout_of
from arachne.model.values import Array


@dataclass(frozen=True, eq=False)
class Examples:
    """Inputs of one array: errors with a cause, and right inputs without it in the same mixture of true classes.

    Attributes:
        name: The array's name.
        errors: `(k, ...)`.
        right: `(m, ...)`.
        low: The smallest value of the data.
        high: The largest.
        names: The names of an input's values, if they have any.
    """

    name: str
    errors: Array
    right: Array
    low: float
    high: float
    names: tuple[str, ...] | None = None

    @cached_property
    def layout(self) -> tuple[int, ...] | None:
        """The shape that makes pictures of the inputs; None if they are no pictures."""
        return layout_of(self.right)
