"""`MODEL_CARD.md`: describes the repaired model, for a hub of models."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from arachne.evidence.verdict import capitalise
from arachne.model.values import Description
from arachne.report.patch_rows import MAX_LISTED_WEIGHTS, all_rows
from arachne.text import p_value, percent, printable

if TYPE_CHECKING:
    from arachne.patch import Patch

MOST_WEIGHTS = 20
MOST_CLASSES = 10


def model_card(result: Mapping[str, Any], patch: Patch, description: Description, *, command: str | None = None) -> str:
    """The card in Markdown: base model, what was changed, evidence, limits, how to take it back.

    Args:
        result: What `result.json` holds.
        patch: The changed weights.
        description: The base model.
        command: What to type to get the same again.
    """
    parts = [
        f"# A repaired model: {text(result['target'])}",
        f"**{text(capitalise(result.get('heading', result['verdict'])))}.** {text(capitalise(result['sentence']))}.",
        f"{text(capitalise(result['balance']))}." if result.get("balance") else "",
        *(text(note) for note in result.get("notes", ())),
        _base(patch, description),
        _evidence(result),
        _classes(result["held_out"]),
        _weights(patch),
        _limits(result),
        _again(command),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def text(value: Any) -> str:
    """A name that stays text in Markdown and in the HTML made of it."""
    return re.sub(r"([\\`*_{}\[\]<>|#&~])", r"\\\1", printable(value))


def _base(patch: Patch, description: Description) -> str:
    rows = {
        "file": description.source,
        "format": description.format,
        "framework": description.framework,
        "sha256 of the file": patch.base.sha256,
    }
    known = [f"| {name} | {text(value)} |" for name, value in rows.items() if value]
    return "\n".join(["## Base model", "", "| | |", "|---|---|", *known])


def _evidence(result: Mapping[str, Any]) -> str:
    parts = {"seen": result.get("seen"), "held out": result["held_out"]}
    shown = {name: part for name, part in parts.items() if part is not None}
    columns = [_column(part) for part in shown.values()]
    rows = [f"| {name} | " + " | ".join(column[name] for column in columns) + " |" for name in columns[0]]
    head = ["## Evidence", "", "| | " + " | ".join(shown) + " |", "|---" * (len(shown) + 1) + "|"]
    return "\n".join([*head, *rows, "", "Intervals are at 95 %. Held-out inputs were not used by the repair."])


def _column(part: Mapping[str, Any]) -> dict[str, str]:
    errors, new_errors = part["target_errors_before"], part["target_errors_after"]
    calibration = part["calibration_error_before"], part["calibration_error_after"]
    return {
        "repaired": f"{part['repaired']:,} of {part['negatives']:,}: {_rate(part, 'repair')}",
        "broken": f"{part['broken']:,} of {part['positives']:,}: {_rate(part, 'break')}",
        "fault, all inputs": f"{errors:,} → {new_errors:,}, {p_value(part['sign_p'])}",
        "accuracy": f"{_share(part['accuracy_before'])} → {_share(part['accuracy_after'])}",
        "calibration error": f"{_share(calibration[0])} → {_share(calibration[1])}",
        "sign flips by input" if "by_input" in part else "McNemar's test": p_value(part["mcnemar_p"]),
    }


def _rate(part: Mapping[str, Any], name: str) -> str:
    low, high = part[f"{name}_interval"]
    return f"{_share(part[f'{name}_rate'])} ({percent(low)} to {percent(high)})"


def _share(value: float | None) -> str:
    return "-" if value is None else percent(value)


def _classes(held_out: Mapping[str, Any]) -> str:
    rows = [
        (row["accuracy_after"] - row["accuracy_before"], row)
        for row in held_out["classes"]
        if row["accuracy_after"] not in (None, row["accuracy_before"])
    ]
    if not rows:
        return ""
    rows.sort(key=lambda pair: -abs(pair[0]))
    lines = [
        f"| {text(row['name'])} | {row['inputs']:,} | {percent(row['accuracy_before'])} | "
        f"{percent(row['accuracy_after'])} | {100 * change:+.1f} |"
        for change, row in rows[:MOST_CLASSES]
    ]
    head = "| class | inputs | before | after | points |\n|---|---:|---:|---:|---:|"
    return "\n".join(["## Classes that changed most, held out", "", head, *lines])


def _rows(patch: Patch) -> str:
    """A long patch by row: a list of its weights would say little here."""
    rows = all_rows(patch.changes)
    lines = [
        f"| `{_code(row.tensor)}`, {row.name} | {row.weights} | {row.size:.3g} | {row.largest:+.3g} |"
        for row in rows[:MOST_WEIGHTS]
    ]
    more = [f"\nand {len(rows) - MOST_WEIGHTS:,} more rows"] if len(rows) > MOST_WEIGHTS else []
    sentence = (
        f"{len(patch):,} weights, all in `patch.json`; by row, the size being the root of the sum of squared changes."
    )
    head = ["## Changed weights", "", sentence, "", "| row | weights | size | largest |", "|---|---:|---:|---:|"]
    return "\n".join([*head, *lines, *more])


def _weights(patch: Patch) -> str:
    if len(patch) > MAX_LISTED_WEIGHTS:
        return _rows(patch)
    lines = [f"| `{_code(entry.address)}` | {entry.old:.6g} | {entry.new:.6g} |" for entry in patch.entries]
    more = [f"\nand {len(lines) - MOST_WEIGHTS:,} more, all in `patch.json`"] if len(lines) > MOST_WEIGHTS else []
    head = ["## Changed weights", "", "| weight | old | new |", "|---|---:|---:|"]
    return "\n".join([*head, *lines[:MOST_WEIGHTS], *more])


def _code(value: Any) -> str:
    return printable(value).replace("`", "'")


def _limits(result: Mapping[str, Any]) -> str:
    held_out = result["held_out"]
    lines = [
        f"The evidence rests on {held_out['inputs']:,} held-out inputs, {held_out['negatives']:,} of which showed the "
        "fault; it says nothing about inputs of another kind.",
        f"Up to {percent(held_out['break_interval'][1])} of the inputs the base model gets right may be wrong now.",
        "A repair changes decisions, not the data a model was trained on: the cause of the fault may still be there.",
    ]
    data = result.get("provenance", {}).get("data", {})
    if data.get("sha256"):
        lines.append(f"Data: {text(data.get('name') or 'arrays')}, sha256 {data['sha256']}.")
    return "\n".join(["## Limits", "", *(f"- {line}" for line in lines)])


def _again(command: str | None) -> str:
    lines = ["## Again, and back", ""]
    if command:
        lines += [f"    {_code(command)}", ""]
    return "\n".join([*lines, "`arachne revert patch.json MODEL -o ORIGINAL` takes the patch out again, bit for bit."])
