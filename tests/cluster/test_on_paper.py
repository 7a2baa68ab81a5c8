"""The page about scale is what its numbers make."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_page_about_scale_is_made_of_the_kept_numbers() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "make_on_paper.py"))
    found = json.loads(script["RESULTS"].read_text(encoding="utf-8"))
    assert script["PAGE"].read_text(encoding="utf-8") == script["page"](found)
    assert all(one["same"] for one in found["searches"])
