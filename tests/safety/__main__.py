"""Every attack and fault, and what held: `python -m tests.safety`; a part: `python -m tests.safety hostile`."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import tempfile
import time
from pathlib import Path

from tests.safety.kept import Kept
from tests.safety.rows import Row, format_rows


def main() -> int:
    found = {path.stem.removeprefix("part_"): path.stem for path in Path(__file__).parent.glob("part_*.py")}
    modules = {name: importlib.import_module(f"tests.safety.{stem}") for name, stem in found.items()}
    names = sorted(modules, key=lambda name: modules[name].ORDER)
    parser = argparse.ArgumentParser(prog="python -m tests.safety", description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*names, []], help="parts to run; all unless given")
    parser.add_argument("--seed", type=int, default=0, help="seed of everything random")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--seconds", type=float, help="no trial begins later; mutations go on until then")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="trials that held are kept there, and not made again")
    given = parser.parse_args()
    kept = Kept(given.keep, given.seconds)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="arachne-state-") as state:
        os.environ["XDG_STATE_HOME"] = os.environ["XDG_CACHE_HOME"] = state
        for name in given.parts or names:
            began = time.monotonic()
            rows += modules[name].run(given.seed, given.jobs, kept)
            print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr)
    print(format_rows(rows))
    return int(any(row.failures for row in rows))


if __name__ == "__main__":
    sys.exit(main())
