"""A patch for people: the changed weights by layer, old → new, and the evidence, as text and as HTML.

A patch of hundreds of weights is summed up by tensor and row first; then come its largest changes.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from arachne.dtypes import shortest
from arachne.report.markup import table
from arachne.report.patch_rows import LONG, first_by_size, row_changes, size_of, summed_up
from arachne.report.printable import printable
from arachne.wording import counted

if TYPE_CHECKING:
    from arachne.patch import Patch, WeightChange
    from arachne.patch.change import TensorChange

WIDTH = 80
"""How wide the text is."""

MOST_ROWS = 12
"""How many rows of one tensor a summary lists."""


def as_text(patch: Patch, *, most: int | None = LONG, layer: str | None = None, hint: str = "") -> str:
    """The patch as lines of plain text.

    Args:
        patch: The patch.
        most: How many values to show, the largest changes first; all of them when None.
        layer: The only layer to show; all of them when None.
        hint: What to add where values are left out, such as how to see them.
    """
    changes = [change for change in patch.changes if layer in (None, change.tensor.layer)]
    lines = [headline(patch.changes) if layer is None else f"{headline(changes)} of layer {layer}"]
    weights = sum(len(change.entries) for change in changes)
    if weights > LONG:
        lines += ["by row, the size of a change being the root of the sum of squares:"]
        for change in changes:
            lines += ["", *summary(change)]
        lines += ["", "values:" if most is None or most >= weights else f"the {most} largest changes:"]
    for change, entries in first_by_size(changes, most):
        lines += ["", tensor_line(change) if weights <= LONG else change.tensor.name]
        rows = [(place(entry), *values(entry)) for entry in entries]
        wide = [max(len(row[column]) for row in rows) for column in range(3)]
        lines += [f"  {a:<{wide[0]}}  {b:>{wide[1]}} → {c:>{wide[2]}}" for a, b, c in rows]
    if most is not None and weights > most:
        lines += ["", f"… and {weights - most:,} more{hint}"]
    lines += _told(patch)
    return "\n".join(map(printable, lines))


def summary(change: TensorChange) -> list[str]:
    """A tensor in a few lines: how much changes in all, and in which rows."""
    rows = row_changes(change)
    lines = [f"{tensor_line(change)} by {size_of(change.entries):.3g}"]
    if len(change.tensor.shape) > 1:
        wide = max(len(row.name) for row in rows[:MOST_ROWS])
        lines += [f"  {row.name:<{wide}}  {summed_up(row)}" for row in rows[:MOST_ROWS]]
        more = rows[MOST_ROWS:]
        if more:
            inside = counted(sum(row.weights for row in more), "weight")
            lines.append(f"  … and {counted(len(more), f'more {more[0].word}')} with {inside}")
    return lines


def _told(patch: Patch) -> list[str]:
    """Where the patch comes from and what it was accepted with, as lines."""
    lines: list[str] = []
    told = [*facts(patch.provenance), *verdict(patch.evidence)]
    if told:
        wide_name = max(len(name) for name, _ in told)
        margin = " " * (wide_name + 2)
        lines.append("")
        for name, value in told:
            lines += textwrap.wrap(
                value,
                WIDTH,
                initial_indent=f"{name:<{wide_name}}  ",
                subsequent_indent=margin,
                break_long_words=False,
                break_on_hyphens=False,
            )
    return lines


def as_html(patch: Patch) -> str:
    """The patch as a fragment of HTML for notebooks."""
    above = f"Patch: {headline(patch.changes)}"
    rows = [
        (change.tensor.name, place(entry), *values(entry))
        for change, entries in first_by_size(patch.changes, LONG)
        for entry in entries
    ]
    if len(patch) > LONG:
        parts = [f"{change.tensor.name} {_rows(change)}" for change in patch.changes]
        above += f" ({'; '.join(parts)}); the {LONG} largest changes"
        rows.append((f"… and {len(patch) - LONG:,} more", "", "", ""))
    below = "; ".join(f"{name}: {value}" for name, value in [*facts(patch.provenance), *verdict(patch.evidence)])
    return table(["tensor", "index", "old", "new"], rows, above=above, below=below)


def _rows(change: TensorChange) -> str:
    rows = row_changes(change)
    weights = counted(len(change.entries), "weight")
    return f"{weights} in {counted(len(rows), rows[0].word)}" if rows[0].word else weights


def headline(changes: Sequence[TensorChange]) -> str:
    """`3 weights in 2 tensors`."""
    weights = sum(len(change.entries) for change in changes)
    if not weights:
        return "no weights change"
    return f"{counted(weights, 'weight')} in {counted(len(changes), 'tensor')}"


def tensor_line(change: TensorChange) -> str:
    """`fc2.weight, float32 (10, 100), 3 of 1,000 weights`, and how often it is used when that is more than once."""
    tensor = change.tensor
    size = counted(prod(tensor.shape), "weight")
    line = f"{tensor.name}, {tensor.dtype} {tensor.shape}, {len(change.entries):,} of {size}"
    return line if tensor.uses == 1 else f"{line}, used {tensor.uses} times: every use changes"


def place(entry: WeightChange) -> str:
    """`[0, 13]`."""
    return f"[{', '.join(map(str, entry.address.index))}]"


def values(entry: WeightChange) -> tuple[str, str]:
    """Old and new value, in the fewest digits that tell them."""
    return repr(shortest(entry.old, entry.dtype)), repr(shortest(entry.new, entry.dtype))


def facts(provenance: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The plain values in a provenance, and what the patch was put together or derived from."""
    told = [(name, _plain(value)) for name, value in provenance.items() if isinstance(value, (str, int, float, list))]
    told = [(name, value) for name, value in told if value and name != "stack"]
    parts = provenance.get("stack")
    if isinstance(parts, list):
        told.append(("stack of", counted(len(parts), "patch", "patches")))
    origin = provenance.get("derived_from")
    if isinstance(origin, Mapping):
        for tensor in origin.get("tensors", ()):
            told.append(("derived", f"{tensor.get('from')} → {tensor.get('to')} ({tensor.get('how')})"))
    return told


def verdict(evidence: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The verdict and the held-out counts a patch was accepted with."""
    words = (("verdict", "verdict"), ("sentence", "because"))
    told = [(word, str(evidence[name])) for name, word in words if evidence.get(name)]
    for name in ("seen", "held_out"):
        part = evidence.get(name)
        if isinstance(part, Mapping) and {"repaired", "negatives", "broken", "positives"} <= part.keys():
            counts = (
                f"repaired {part['repaired']} of {part['negatives']}, broke {part['broken']} of {part['positives']}"
            )
            told.append((name.replace("_", " "), counts))
    return told


def _plain(value: Any) -> str:
    if isinstance(value, list):
        return (
            ", ".join(str(item) for item in value) if all(isinstance(item, (str, int, float)) for item in value) else ""
        )
    return str(value)
