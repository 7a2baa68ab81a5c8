"""Searchers side by side, as `compare.json` has them: tables for a terminal, the page, and the schema."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderableType
from rich.table import Table

from arachne.errors import InputError
from arachne.report.console import Ink
from arachne.report.front_charts import COLOURS
from arachne.report.html import TONES, environment, script_and_hash
from arachne.report.page import without_hashes
from arachne.text import percent

SCHEMA = "arachne.comparison/1"
BUDGETS = (0.001, 0.005, 0.01, 0.02)
"""The break rates of the small table."""

NAME_WIDTH = 20
"""Longer names of searchers go on in the next line."""


def comparison_schema() -> dict[str, Any]:
    """The JSON Schema of `compare.json`."""
    text = resources.files("arachne.report").joinpath("comparison.schema.json").read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


@dataclass(frozen=True)
class ComparisonTable:
    """Both tables and what they say, for a terminal of 80 columns."""

    comparison: Mapping[str, Any]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """Called by rich when the table is printed."""
        ink, rows = Ink(options.ascii_only), self.comparison["searchers"]
        budget = percent(self.comparison["budget"])
        yield ink.text(f"held out, within a budget of {budget}, with 95 % intervals; s: processor time")
        names = [row["searcher"] for row in rows]
        table = _table("searcher", names, "repaired", "broken", "accuracy", "weights", "s")
        table.add_column("verdict", overflow="fold", max_width=7)
        for row in rows:
            cells = ("-", "-", "-") if row["held_out"] is None else _shares(row["held_out"])
            weights = "-" if row["weights"] is None else f"{row['weights']:,}"
            columns = (*cells, weights, f"{row['seconds']:.1f}", row["verdict"])
            table.add_row(ink.text(row["searcher"]), *map(ink.text, columns))
        yield table
        table = _table("repaired, broken within", names, *(f"{100 * budget:g} %" for budget in BUDGETS))
        for row in rows:
            table.add_row(ink.text(row["searcher"]), *(ink.text(_short(at["held_out"])) for at in row["at"]))
        yield table
        for row in rows:
            if row["held_out"] is None:
                yield ink.text(f"{row['searcher']}: {row['sentence']}.")
        yield from map(ink.text, self.comparison["sentences"])


def _shares(counts: Mapping[str, Any]) -> tuple[str, str, str]:
    repaired, broken = (
        f"{counts[part]:,} of {counts[whole]:,}\n{_span(counts[interval])}"
        for part, whole, interval in (
            ("repaired", "negatives", "repair_interval"),
            ("broken", "positives", "break_interval"),
        )
    )
    return repaired, broken, f"{percent(counts['accuracy_before'])}\n→ {percent(counts['accuracy_after'])}"


def _span(interval: tuple[float, float]) -> str:
    low, high = interval
    return f"{percent(low).removesuffix(' %')}–{percent(high)}"


def _short(counts: Mapping[str, Any] | None) -> str:
    if counts is None:
        return "-"
    rates = [counts[part] / counts[whole] if counts[whole] else float("nan") for part, whole in _SHARES]
    return "\n".join(map(percent, rates))


_SHARES = (("repaired", "negatives"), ("broken", "positives"))


def _table(name: str, names: Sequence[str], *columns: str) -> Table:
    """Make a table whose first column is as wide as the names in it, of up to 20 letters."""
    width = min(NAME_WIDTH, max(map(len, names), default=0))
    table = Table(box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False, collapse_padding=True)
    table.add_column(name, overflow="fold", min_width=width, max_width=NAME_WIDTH)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    return table


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
        .render(
            comparison=without_hashes(comparison),
            rows=rows,
            tone=best,
            budgets=BUDGETS,
            script=script,
            script_hash=script_hash,
        )
    )
