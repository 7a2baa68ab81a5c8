"""Repair quantised copies of a network directly, beside the repair of the float network.

    python -m benchmarks.quantised                     # measure what benchmarks/results has not, and print the tables
    python -m benchmarks.quantised --only fm-trigger-b # one fault
    python -m benchmarks.quantised --minutes 9         # begin no repair after nine minutes; the next call goes on
    python -m benchmarks.quantised --print             # print the tables alone

The networks and faults are the study's (`examples/study`), as far as they are trained: planted causes and natural
confusions. Each network is exported to ONNX and quantised by onnxruntime (static QDQ per channel, QOperator, dynamic),
and written in Keras, converted to TFLite, and converted in whole numbers from end to end. Every copy is repaired by
default with a budget of 0.5 %, on the splits of several seeds, whose counts are added; repaired and broken are of
held-out inputs, judged by the runtime of that format. *Within reach* is the most that a candidate of the search repairs
of those that break at most 0.5 % of the held-out inputs: what a search found, apart from the luck of the choice. Two
rows are of patches found elsewhere: that of the float network in its int8 copy, that of Keras in the float TFLite file.
For each copy: is the accuracy the one that a plain session of the runtime has, do only weights differ in the saved
file, does `revert` give back the file as it was?
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.quantised.copies import CARRIED, FORMS, GROUPS, trained_case
from benchmarks.quantised.repairs import measure
from benchmarks.quantised.tables import print_tables
from examples.study.cases import Case

RESULTS = Path(__file__).parent.parent / "results" / "quantised.json"


def main() -> None:
    """Measure what is missing, and print the tables."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.quantised", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="Rows that contain this, such as 'fm-trigger-b | int8'.")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="Begin no repair after so many.")
    parser.add_argument("--print", action="store_true", help="Measure nothing.")
    asked = parser.parse_args()
    began = time.monotonic()
    for case, form in [] if asked.print else list(missing(read_results(), asked.only)):
        if time.monotonic() - began > 60 * asked.minutes:
            break
        key = f"{case.name} | {form}"
        splits = f"{key} | splits"
        row = measure(case, form, partial(write_result, splits), read_results().get(splits, {}))
        write_result(key, row, without=splits)
        print(f"{key}: {row}", flush=True)
    print_tables(read_results())


def missing(known: dict[str, Any], only: str) -> Iterator[tuple[Case, str]]:
    """Yield what is still to be measured."""
    for name in (name for names in GROUPS.values() for name in names):
        rows = [row for row in (*FORMS, *CARRIED) if f"{name} | {row}" not in known and only in f"{name} | {row}"]
        case = trained_case(name) if rows else None
        if case is not None:
            yield from ((case, row) for row in rows)


def read_results() -> dict[str, Any]:
    """Return what was measured, by fault and copy."""
    found: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    return found


def write_result(key: str, value: dict[str, Any], without: str = "") -> None:
    """Add a row to the results, as another slice may have left them, and leave out another."""
    known = {**read_results(), key: value}
    known.pop(without, None)
    RESULTS.write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    main()
