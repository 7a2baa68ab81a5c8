"""The table a full run prints: a row for each attack or fault.

A module `tests/safety/part_*.py` exports `ORDER` and `run(seed, jobs, kept)`, which yields its rows.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        attack: The attack or fault.
        number: How often it was tried.
        outcome: What was seen, with figures.
        failures: What did not hold, a sentence each; empty where everything did.
    """

    attack: str
    number: int
    outcome: str
    failures: tuple[str, ...] = ()


def format_rows(rows: list[Row]) -> str:
    """The rows as a Markdown table, then what did not hold."""
    lines = ["| attack or fault | number | held | outcome |", "|---|---|---|---|"]
    for row in rows:
        held = "yes" if not row.failures else f"no: {len(row.failures)} failed"
        lines.append(f"| {row.attack} | {row.number:,} | {held} | {row.outcome} |")
    for row in rows:
        lines += [f"{row.attack}: {failure}" for failure in row.failures]
    return "\n".join(lines)
