"""Repair one case of each task from the command line, in ONNX, PyTorch and Keras.

    python -m benchmarks.tasks                        # makes data and networks (minutes), repairs, prints the table
    python -m benchmarks.tasks --only seg --in onnx   # one case in one framework
    python -m benchmarks.tasks --print                # the table of what benchmarks/results has

Each repair is one command with the defaults, which is printed; half of the data judges. Two runs at once keep each
other's rows.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.tasks.cases import CASES
from benchmarks.tasks.networks import MODELS, write_models

RESULTS = Path(__file__).parents[1] / "results" / "tasks.json"
NOTHING_WITHIN_BUDGET = 6
"""The exit code of `arachne repair` where no patch keeps its budget."""

Row = dict[str, Any]


def prepare(name: str, folder: Path) -> None:
    """Write data and models of a case, unless they are there."""
    if (folder / f"{name}.keras").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    write_models(CASES[name].make(folder), CASES[name].shape, folder / name)


def repair(name: str, framework: str, folder: Path) -> Row:
    """Repair a case by its command, and read what came of it."""
    words = ["repair", name + MODELS[framework], *CASES[name].arguments, "-o", f"{framework}-fix", "--force"]
    print("arachne", shlex.join(words), flush=True)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, "-m", "arachne", *words], cwd=folder, check=False, env=environment)
    row = {"case": name, "framework": framework}
    if done.returncode == NOTHING_WITHIN_BUDGET:
        return {**row, "verdict": "nothing within the budget"}
    done.check_returncode()
    result = json.loads((folder / f"{framework}-fix" / "result.json").read_text())
    held_out = result["held_out"]
    return {
        **row,
        "counted": held_out.get("counted", "inputs"),
        **{key: held_out[key] for key in ("negatives", "repaired", "positives", "broken")},
        "verdict": result["verdict"],
        "weights": result["weights"],
        "seconds": round(sum(result["seconds"].values())),
    }


def keep(made: Row) -> None:
    """Put a row in the place of the one that was measured before; nobody else writes meanwhile."""
    with RESULTS.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        rows = json.loads(file.read() or "[]")
        rows = [row for row in rows if (row["case"], row["framework"]) != (made["case"], made["framework"])] + [made]
        rows.sort(key=lambda row: (list(CASES).index(row["case"]), list(MODELS).index(row["framework"])))
        file.truncate(0)
        file.write(json.dumps(rows, indent=1) + "\n")


def table(rows: list[Row]) -> str:
    """The rows as Markdown."""
    lines = ["| case | | counted | repaired | broken | verdict |", "|---|---|---|---:|---:|---|"]
    for row in rows:
        counts = "| | | |"
        if "repaired" in row:
            broken = f"{row['broken']} of {row['positives']:,}"
            counts = f"| {row['counted']} | {row['repaired']} of {row['negatives']} | {broken} |"
        lines.append(f"| {row['case']} | {row['framework']} {counts} {row['verdict']} |")
    return "\n".join(lines)


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("tasks-work"), help="folder for data, models and repairs")
    parser.add_argument("--only", choices=CASES)
    parser.add_argument("--in", dest="framework", choices=MODELS)
    parser.add_argument("--print", action="store_true", help="only print what was measured")
    asked = parser.parse_args()
    for framework in () if asked.print else [asked.framework] if asked.framework else MODELS:
        for name in [asked.only] if asked.only else CASES:
            prepare(name, asked.work / name)
            keep(repair(name, framework, asked.work / name))
    print(table(json.loads(RESULTS.read_text())))


if __name__ == "__main__":
    main()
