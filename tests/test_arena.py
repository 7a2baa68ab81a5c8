"""reports/arena.md is what `python -m examples.arena` prints from the committed results, without models or data."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.pages import ROOT

LENET5 = ("auto", "auto, with training data")


def test_the_page_is_what_the_command_prints() -> None:
    nowhere = {**os.environ, "ARACHNE_DATA": str(ROOT / "nowhere"), "PYTHONUTF8": "1"}
    command = [sys.executable, "-m", "examples.arena", "--replay"]
    done = subprocess.run(command, cwd=ROOT, env=nowhere, stdout=subprocess.PIPE, check=True, timeout=120)
    page = done.stdout.decode("utf-8")
    assert page == (ROOT / "reports" / "arena.md").read_text(encoding="utf-8")
    assert "as published" in page
    assert "nan" not in page.split()


def test_the_readme_has_the_figures_of_the_page() -> None:
    page = (ROOT / "reports" / "arena.md").read_text(encoding="utf-8")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for arena, contenders in (("nnrepair-", ("auto",)), ("aprnn-", ("auto",)), ("fixingstudy-", LENET5)):
        (shown,) = (line for line in readme.splitlines() if f"reports/arena.md#{arena}" in line)
        section = next(part for part in page.split("\n## ") if part.lower().startswith(arena.rstrip("-")))
        ours = shown.rsplit("|", 2)[1].replace("−", "-")
        for contender in contenders:
            row = next(line for line in section.splitlines() if line.startswith(f"| **{contender}** |"))
            gained, lost = (cell.split(" ±")[0].strip() for cell in row.split("|")[2:4])
            assert f"{float(gained):.1f}" in ours
            assert f"{abs(float(lost)):.2f}".lstrip("0") in ours
