"""The tables of reports/scale.md are those of the committed results."""

from __future__ import annotations

import json
import runpy

from tests.pages import ROOT


def test_the_tables_on_scale_are_made_of_the_committed_results() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "make_scale.py"))
    page = script["PAGE"].read_text(encoding="utf-8")
    results = json.loads(script["RESULTS"].read_text(encoding="utf-8"))
    assert results
    assert script["fill_page"](page, results) == page
