"""Imports only flow downwards: what repairs knows nothing of what shows and of what is typed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import arachne

ROOT = Path(arachne.__file__).parent
CORE = ("data", "localise", "evaluate", "search", "patch", "evidence")
ABOVE = ("report", "cli", "engine", "result", "api", "measuring", "survival")


def sources(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def imported_at_once(path: Path) -> Iterator[str]:
    """The modules a file imports when it is imported itself: not inside functions, not for type checkers alone."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)


@pytest.mark.parametrize("path", sources(*CORE), ids=lambda path: str(path.relative_to(ROOT)))
def test_core_imports_nothing_that_shows_or_steers(path: Path) -> None:
    above = tuple(f"arachne.{name}" for name in ABOVE)
    assert [name for name in imported_at_once(path) if name.startswith(above)] == []


def test_core_messages_name_no_command_line_option() -> None:
    """An error names an argument, and the command line adds its option."""
    named = []
    for path in [*sources(*CORE, "report"), *ROOT.glob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Raise):
                texts = [one.value for one in ast.walk(node) if isinstance(one, ast.Constant)]
                named += [(path.name, text) for text in texts if isinstance(text, str) and re.search(r"--[a-z]", text)]
    assert named == []
