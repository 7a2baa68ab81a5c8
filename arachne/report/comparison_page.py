"""`compare.html`: searchers side by side as one self-contained file, made from `compare.json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from arachne.errors import InputError
from arachne.report.comparison import BUDGETS, SCHEMA
from arachne.report.front_charts import COLOURS
from arachne.report.html import TONES, environment, script_and_hash


def render(comparison: Mapping[str, Any]) -> str:
    """Render a comparison as HTML; equal objects give equal bytes.

    Raises:
        InputError: Not a comparison, or one of another version.
    """
    if comparison.get("schema") != SCHEMA:
        raise InputError(f"expected a comparison of schema '{SCHEMA}', got '{comparison.get('schema')}'")
    rows = [
        {**row, "colour": number, "css": f"maker-{number % COLOURS}", "tone": TONES.get(row["verdict"], "unsure")}
        for number, row in enumerate(comparison["searchers"])
    ]
    best = next((row["tone"] for row in rows if row["searcher"] == comparison["best"]), "bad")
    script, script_hash = script_and_hash("compare.js")
    return (
        environment()
        .get_template("compare.html.j2")
        .render(comparison=comparison, rows=rows, tone=best, budgets=BUDGETS, script=script, script_hash=script_hash)
    )
