"""Real sizes on one machine.

    python -m tests.benchmarks.real_sizes                            every row that has no result yet
    python -m tests.benchmarks.real_sizes --only resnet50 vit        of some networks
    python -m tests.benchmarks.real_sizes --rows contrast bl --again some rows, measured again
    python scripts/make_scale.py                                     docs/scale.md from the results

Each row is measured in a process of its own and written to `tests/benchmarks/results/real_sizes.json` as soon as it is
there, so a run can be stopped and gone on with. The weights are made up; what is measured does not depend on them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.benchmarks.real_sizes.networks import NETWORKS

RESULTS = Path(__file__).parent.parent / "results" / "real_sizes.json"
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def main() -> None:
    """Measure what is asked for."""
    from tests.benchmarks.real_sizes.localising import LOCALISERS

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(NETWORKS), default=list(NETWORKS), metavar="NETWORK")
    parser.add_argument("--rows", nargs="+", choices=list(LOCALISERS), default=list(LOCALISERS), metavar="ROW")
    parser.add_argument("--again", action="store_true", help="measure also what has a result")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--one", nargs=2, metavar=("NETWORK", "ROW"), help="measure one row here, and print it")
    asked = parser.parse_args()
    if asked.one:
        from tests.benchmarks.real_sizes.localising import measure

        print(json.dumps(measure(*asked.one)))
        return
    for name in asked.only:
        for row in asked.rows:
            if asked.again or f"{name}: {row}" not in read(asked.results):
                keep(asked.results, f"{name}: {row}", in_own_process(name, row))


def in_own_process(name: str, row: str) -> dict[str, Any]:
    """One row, measured in a new process."""
    command = [sys.executable, "-m", "tests.benchmarks.real_sizes", "--one", name, row]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, **ONE_THREAD})
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(json.dumps(found), flush=True)
    return found


def read(path: Path) -> dict[str, Any]:
    """All results so far."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found


def keep(path: Path, key: str, found: dict[str, Any]) -> None:
    """Put one result to the others."""
    results = {**read(path), key: found}
    path.write_text(json.dumps(dict(sorted(results.items())), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
