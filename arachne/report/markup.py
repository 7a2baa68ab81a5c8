"""A little HTML for notebooks: tables in which everything is text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from arachne.text import printable

CELL = "padding:2px 10px;text-align:left"


def table(headings: Sequence[str], rows: Iterable[Sequence[object]], *, above: str = "", below: str = "") -> str:
    """A table with a line of text above and below it; every cell is escaped."""
    head = "".join(f'<th style="{CELL}">{_text(heading)}</th>' for heading in headings)
    body = "".join("<tr>" + "".join(f'<td style="{CELL}">{_text(cell)}</td>' for cell in row) + "</tr>" for row in rows)
    parts = [f"<p>{_text(above)}</p>" if above else "", f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody>"]
    return "<div>" + "".join(parts) + "</table>" + (f"<p>{_text(below)}</p>" if below else "") + "</div>"


def _text(value: object) -> str:
    return escape(printable(value))
