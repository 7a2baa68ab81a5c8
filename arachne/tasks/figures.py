"""Figures: a table of what people read of a model's task, before and after a patch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from arachne.text import percent

Cell = str | int | float | None
"""A name, a count, a share between 0 and 1, or nothing."""


BEFORE, AFTER = " before", " after"
"""The ends of the heads of two columns that belong together."""


@dataclass(frozen=True)
class Figures:
    """Counts and shares that a task has besides its decisions, such as found objects and precision.

    Attributes:
        title: What is counted, and where.
        columns: The head of each column; two that end in `before` and `after` belong together.
        rows: The cells of each row, the first one its name.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def texts(self) -> dict[str, Any]:
        """Return title, columns and rows as a report shows them, each pair of columns as one: `12 → 3`."""
        heads = [column.removesuffix(BEFORE) for column in self.columns if not column.endswith(AFTER)]
        return {"title": self.title, "columns": heads, "rows": [self._join_pairs(row) for row in self.rows]}

    def _join_pairs(self, row: tuple[Cell, ...]) -> list[str]:
        found: list[str] = []
        for column, cell in zip(self.columns, map(cell_text, row), strict=True):
            if column.endswith(AFTER):
                found[-1] = found[-1] if found[-1] == cell else f"{found[-1]} → {cell}"
            else:
                found.append(cell)
        return found

    def to_json(self) -> dict[str, Any]:
        """Return the table as JSON has it."""
        return {"title": self.title, "columns": list(self.columns), "rows": [list(row) for row in self.rows]}


def cell_text(cell: Cell) -> str:
    """Return a cell as a report shows it: shares in per cent, nothing as a dash."""
    if cell is None:
        return "–"
    return percent(cell) if isinstance(cell, float) else f"{cell:,}" if isinstance(cell, int) else cell
