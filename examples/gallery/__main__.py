"""Repair models that come inside packages people install, and write the page about it.

python -m examples.gallery run magika      # needs the package; writes examples/gallery/results/magika.json
python -m examples.gallery report          # docs/gallery.md, reports/opened-files.md from results
python -m examples.gallery report --check  # fails where the page is another one
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from examples.gallery import file_types, text_direction, wake_words
from examples.gallery.exhibit import Exhibit, MissingError
from examples.gallery.measure import measure
from examples.gallery.openings import look_at_files
from examples.gallery.page import openings, write_page

EXHIBITS: dict[str, Exhibit] = {
    module.EXHIBIT.name: module.EXHIBIT for module in (file_types, wake_words, text_direction)
}
FILES = "files"
NAMES = [*EXHIBITS, FILES]
RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parents[2] / "docs" / "gallery.md"
FILES_PAGE = Path(__file__).parents[2] / "reports" / "opened-files.md"


def main(words: list[str] | None = None) -> int:
    """Run or report; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="repair and measure")
    run.add_argument("names", nargs="*", choices=NAMES, default=NAMES, metavar="NAME", help=", ".join(NAMES))
    run.add_argument("-o", "--output", type=Path, default=Path("gallery"), help="folder for data and pages")
    report = commands.add_parser("report", help="write docs/gallery.md from the results")
    report.add_argument("--check", action="store_true", help="only say whether the page is up to date")
    arguments = parser.parse_args(words)
    if arguments.command == "run":
        return run_all(arguments.names, arguments.output)
    pages = {
        PAGE: write_page({name: (EXHIBITS[name], load(name)) for name in EXHIBITS if load(name)}),
        FILES_PAGE: openings(load(FILES)),
    }
    if arguments.check:
        return int(any(path.read_text("utf-8") != page for path, page in pages.items()))
    for path, page in pages.items():
        path.write_text(page, "utf-8")
    return 0


def run_all(names: list[str], folder: Path) -> int:
    """Measure one after the other; those whose package is missing are named."""
    code = 0
    for name in names:
        try:
            record = look_at_files() if name == FILES else measure(EXHIBITS[name], folder / name)
        except MissingError as missing:
            print(missing, file=sys.stderr)
            code = 1
            continue
        (RESULTS / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n", "utf-8")
        print(json.dumps(record, indent=1))
        if name != FILES:
            print(f"page: {folder / name / 'fix' / 'report.html'}")
    return code


def load(name: str) -> dict[str, Any]:
    """Read a committed result; empty where there is none."""
    path = RESULTS / f"{name}.json"
    return dict(json.loads(path.read_text("utf-8"))) if path.exists() else {}


if __name__ == "__main__":
    sys.exit(main())
