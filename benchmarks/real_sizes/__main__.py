"""Real sizes on one machine.

    python -m benchmarks.real_sizes                            every row that has no result yet (hours)
    python -m benchmarks.real_sizes localise --only resnet50 vit --rows contrast bl
    python -m benchmarks.real_sizes repair --only fm-lstm --rows auto keep
    python -m benchmarks.real_sizes ranking --again
    python scripts/make_scale.py                                     reports/scale.md from the results

Each row is measured in a process of its own and written to `benchmarks/results/real_sizes.json` as soon as it is
there, so a run can be stopped and gone on with.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent.parent / "results" / "real_sizes.json"
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
NETWORKS = ("resnet50", "vit", "bert", "lstm", "head")
LOCALISERS = ("contrast", "contrast, all layers", "bl", "fisher", "spectrum")
REPAIRED = ("fm-lstm", "lstm", "head", "resnet50")
SEARCHERS = ("auto", "bias", "last-layer", "margin", "margin@hidden", "margin@conv", "de")
RANKED, PASSES = ("gtsrb-cnn",), ("8", "12", "20")
ROW_KINDS = {"localise": (NETWORKS, LOCALISERS), "repair": (REPAIRED, SEARCHERS), "ranking": (RANKED, PASSES)}


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=list(ROW_KINDS), help="only these rows")
    parser.add_argument("--only", nargs="+", metavar="NETWORK")
    parser.add_argument("--rows", nargs="+", metavar="ROW", help="localisers, searchers or numbers of passes")
    parser.add_argument("--each", type=int, default=8, metavar="N", help="N negatives and N positives (default: 8)")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="threads of a repair (default: 1)")
    parser.add_argument("--inputs", type=int, metavar="N", help="inputs of a repair, of which half are seen")
    parser.add_argument("--again", action="store_true", help="measure also what has a result")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--one", nargs=3, metavar=("WHAT", "NETWORK", "ROW"), help="measure one row here, print it")
    asked = parser.parse_args()
    if asked.one:
        what, name, row = asked.one
        print(json.dumps(measure_row(what, name, row, asked)))
        return
    for what in [asked.what] if asked.what else ROW_KINDS:
        names, rows = ROW_KINDS[what]
        for name in choose_names(asked.only, names, "network") if asked.what else names:
            for row in choose_names(asked.rows, rows, "row") if asked.what else rows:
                key = f"{what} {name}: {row}"
                if asked.again or key not in read(asked.results):
                    keep(asked.results, key, in_own_process(what, name, row, asked))


def measure_row(what: str, name: str, row: str, asked: argparse.Namespace) -> Any:
    """One row, measured here."""
    if what == "localise":
        from benchmarks.real_sizes.localising import measure

        return measure(name, row, asked.each)
    if what == "repair":
        from benchmarks.real_sizes.repairing import measure as repaired

        return repaired(name, row, asked.threads, asked.inputs)
    from benchmarks.real_sizes.ranking import measure as ranked

    return list(ranked(name, int(row), asked.each))


def in_own_process(what: str, name: str, row: str, asked: argparse.Namespace) -> Any:
    """One row, measured in a new process."""
    command = [sys.executable, "-m", "benchmarks.real_sizes", "--one", what, name, row]
    command += ["--each", str(asked.each), "--threads", str(asked.threads)]
    command += [] if asked.inputs is None else ["--inputs", str(asked.inputs)]
    env = {**os.environ, **dict.fromkeys(THREADS, str(asked.threads))}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=env)
    line = done.stdout.splitlines()[-1]
    print(line, flush=True)
    return json.loads(line)


def choose_names(asked: Sequence[str] | None, known: Sequence[str], what: str) -> Sequence[str]:
    """Return the names asked for, or all; a name that is not known ends the run."""
    for name in asked or ():
        if name not in known:
            sys.exit(f"no {what} named '{name}'; there are: {', '.join(known)}")
    return asked or known


def read(path: Path) -> dict[str, Any]:
    """All results so far."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found


def keep(path: Path, key: str, found: Any) -> None:
    """Put one result to the others."""
    results = {**read(path), key: found}
    path.write_text(json.dumps(dict(sorted(results.items())), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
