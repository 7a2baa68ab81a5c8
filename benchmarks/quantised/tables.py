"""The tables of the report: by network, by copy, by fault."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.quantised.copies import CARRIED, FORMS, GROUPS
from benchmarks.quantised.repairs import COUNTS


def print_tables(known: dict[str, Any]) -> None:
    """Print repaired and broken of each copy with its share of the float repair, by network and by fault."""
    print("| faults | copy | repaired | broken | of the float repair | within reach at 0.5 % | of the float one's |")
    print("|---|---|---|---|---|---|---|")
    for group, names in GROUPS.items():
        for row in (*FORMS, *CARRIED):
            pairs = {name: [known.get(f"{name} | {one}", {}) for one in (row, "float onnx")] for name in names}
            measured = [name for name, pair in pairs.items() if all("negatives" in one for one in pair)]
            if measured:
                cells = shares(total(known, measured, row), total(known, measured, "float onnx"))
                of = f" ({len(measured)} of {len(names)})" if len(measured) < len(names) else ""
                print(f"| {group}{of} | {row} | {' | '.join(cells)} |")
    print("\n| copy | faults | accuracy as the runtime's | only weights | reverts |\n|---|---|---|---|---|")
    for row in FORMS:
        found = [one for key, one in known.items() if key.endswith(f" | {row}")]
        if not found:
            continue
        print(f"| {row} | {len(found)} | {' | '.join(tally(found, check) for check in CHECKS)} |")
    rows = [row for row in (*FORMS, *CARRIED) if any(key.endswith(f" | {row}") for key in known)]
    print(f"\n| fault | {' | '.join(rows)} |\n|---|{'---|' * len(rows)}")
    faults = [name for names in GROUPS.values() for name in names]
    measured = [name for name in faults if any(f"{name} | {row}" in known for row in rows)]
    for name in measured:
        print(f"| {name} | {' | '.join(briefly(known.get(f'{name} | {row}', {})) for row in rows)} |")
    if len(measured) < len(faults):
        print(f"\nNot measured: {', '.join(name for name in faults if name not in measured)}.")
    for key, one in known.items():
        if "refused" in one:
            print(f"\n{key}: {one['refused']}")


def total(known: dict[str, Any], names: list[str], row: str) -> dict[str, int]:
    """Add the counts of some faults."""
    found = [known[f"{name} | {row}"] for name in names]
    return {key: sum(one[key] for one in found) for key in (*COUNTS, "reach") if all(key in one for one in found)}


def briefly(row: dict[str, Any]) -> str:
    """Write the shares repaired and broken, such as `.81 @ .12`."""
    if "negatives" not in row:
        return "refused" if "refused" in row else ""
    rates = row["repaired"] / max(1, row["negatives"]), 100 * row["broken"] / max(1, row["positives"])
    return " @ ".join(f"{rate:.2f}".removeprefix("0") for rate in rates)


WEIGHTS = ("float32", "int8", "int32", "int32, int8", "float32, int8")
"""The dtypes of weights and biases that may differ."""

CHECKS: tuple[Callable[[dict[str, Any]], bool | None], ...] = (
    lambda row: row["right"] == row["right_by_runtime"] if "right" in row else None,
    lambda row: row["differing"] in WEIGHTS if row.get("differing") is not None else None,
    lambda row: row.get("reverts"),
)
"""Is the accuracy that of the runtime, do only weights differ, does the patch revert; None where nobody asked."""


def shares(row: dict[str, Any], base: dict[str, Any]) -> list[str]:
    """Write what was repaired, broken and within reach, with the shares of what the float repair had."""
    broken = f"{row['broken']} of {row['positives']} ({row['broken'] / max(1, row['positives']):.2%})"
    repaired, reach = (_beside(row, base, key) for key in ("repaired", "reach"))
    return [repaired[0], broken, repaired[1], *reach]


def _beside(row: dict[str, Any], base: dict[str, Any], key: str) -> tuple[str, str]:
    """Write a count of the negatives, and its share of the float repair's; nothing where it was not counted."""
    if key not in row or key not in base:
        return "", ""
    rates = [one[key] / max(1, one["negatives"]) for one in (row, base)]
    return f"{row[key]} of {row['negatives']} ({rates[0]:.0%})", f"{rates[0] / rates[1]:.0%}" if rates[1] else ""


def tally(rows: list[dict[str, Any]], check: Callable[[dict[str, Any]], bool | None]) -> str:
    """Write of how many rows something holds."""
    found = [answer for row in rows if (answer := check(row)) is not None]
    return f"{sum(found)} of {len(found)}" if found else ""
