"""Messages of the core are for everybody: Python users have no command line."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import arachne

ROOT = Path(arachne.__file__).parent
PAGE = ROOT.parent / "docs" / "troubleshooting.md"


def options_named(source: str) -> list[str]:
    """The texts in `raise` statements that name a command-line option."""
    raised = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Raise)]
    texts = [part.value for node in raised for part in ast.walk(node) if isinstance(part, ast.Constant)]
    return [text for text in texts if isinstance(text, str) and re.search(r"--[a-z]", text)]


def test_errors_outside_the_command_line_name_no_option() -> None:
    """An error names an argument, and the command line adds its option; `arachne_delta.py` is a program of its own."""
    files = [path for path in ROOT.rglob("*.py") if path.relative_to(ROOT).parts[0] != "cli"]
    files.remove(ROOT / "delta" / "arachne_delta.py")
    assert {path.name: found for path in files if (found := options_named(path.read_text("utf-8")))} == {}


def test_an_option_in_a_message_is_found() -> None:
    assert options_named("raise DataError(f'{n} names; give them with --classes')") == [
        " names; give them with --classes"
    ]


def test_what_the_page_of_troubles_quotes_is_said_somewhere() -> None:
    sources = [
        path.read_text("utf-8") for folder in ("arachne", "backends") for path in (ROOT.parent / folder).rglob("*.py")
    ]
    quoted = re.findall(r"^> (.+)$", PAGE.read_text("utf-8"), re.MULTILINE)
    pieces = [max(quote.split("…"), key=len) for quote in quoted]
    assert len(pieces) > 5
    assert [piece for piece in pieces if not any(piece in source for source in sources)] == []
