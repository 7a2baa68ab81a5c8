"""The committed results: a small file for each arena, cell by cell."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).with_name("results")


def load(arena: str) -> dict[str, Any]:
    """Return the cells of an arena by contender and seed; none if it has not been run."""
    file = RESULTS / f"{arena}.json"
    found: dict[str, Any] = json.loads(file.read_text("utf-8")) if file.exists() else {}
    return found


def save(arena: str, key: str, cell: dict[str, Any]) -> None:
    """Keep one cell."""
    cells = {**load(arena), key: _short(cell)}
    RESULTS.mkdir(exist_ok=True)
    lines = ",\n".join(f" {json.dumps(name)}: {json.dumps(one)}" for name, one in sorted(cells.items()))
    (RESULTS / f"{arena}.json").write_text(f"{{\n{lines}\n}}\n", "utf-8")


def _short(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _short(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_short(one) for one in value]
    return round(value, 5) if isinstance(value, float) else value
