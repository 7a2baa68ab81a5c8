"""Every promise of `docs/guides/safety.md` names the test that tries to break it, and that test is there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "guides" / "safety.md").read_text("utf-8")
NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


def test_every_promise_names_a_test() -> None:
    promised = PAGE.partition("## What is not promised")[0].splitlines()
    rows = [line for line in promised if line.count(" | ") == 2 and "| trusted |" not in line]
    assert len(rows) > 40
    assert [line for line in rows if not NAMED.search(line)] == []


def test_every_test_that_is_named_is_there() -> None:
    named = NAMED.findall(PAGE)
    assert len(named) > 50
    assert [
        (file, name) for file, name in named if f"def {name}(" * bool(name) not in (ROOT / file).read_text("utf-8")
    ] == []
