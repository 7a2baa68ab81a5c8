"""reports/arena.md is what `python -m examples.arena` prints from the committed results, without models or data."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.pages import ROOT


def test_the_page_is_what_the_command_prints() -> None:
    nowhere = {**os.environ, "ARACHNE_DATA": str(ROOT / "nowhere"), "PYTHONUTF8": "1"}
    command = [sys.executable, "-m", "examples.arena", "--replay"]
    done = subprocess.run(command, cwd=ROOT, env=nowhere, stdout=subprocess.PIPE, check=True, timeout=120)
    page = done.stdout.decode("utf-8")
    assert page == (ROOT / "reports" / "arena.md").read_text(encoding="utf-8")
    assert "as published" in page
    assert "nan" not in page.split()
