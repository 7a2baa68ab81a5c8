"""A patch for people: the changed weights by layer, old → new, and the evidence, as text and as HTML.

A patch of hundreds of weights is summed up by tensor and row first; then come its largest changes.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from arachne.patch.low_rank import LowRankChange
from arachne.report.direction_rows import direction_lines
from arachne.report.markup import table
from arachne.report.patch_rows import MAX_LISTED_WEIGHTS, first_by_size, row_changes, size_of, summed_up
from arachne.text import pluralise, printable

if TYPE_CHECKING:
    from arachne.patch import Patch, WeightChange
    from arachne.patch.change import TensorChange

WIDTH = 80
"""How wide the text is."""

MAX_SUMMARY_ROWS = 12
"""How many rows of one tensor a summary lists."""


def as_text(patch: Patch, *, most: int | None = MAX_LISTED_WEIGHTS, layer: str | None = None, hint: str = "") -> str:
    """The patch as lines of plain text.

    Args:
        patch: The patch.
        most: How many values to show, the largest changes first; all of them when None.
        layer: The only layer to show; all of them when None.
        hint: What to add where values are left out, such as how to see them.
    """
    changes = [change for change in patch.changes if layer in (None, change.tensor.layer)]
    lines = _origin_lines(patch)
    lines += [headline(patch.changes) if layer is None else f"{headline(changes)} of layer {layer}"]
    for change in changes:
        lines += [] if change.entries else ["", tensor_line(change)]
        lines += [f"  {line}" for line in direction_lines(change)] if isinstance(change, LowRankChange) else []
    changes = [change for change in changes if change.entries]
    weights = sum(change.weights for change in changes)
    if weights > MAX_LISTED_WEIGHTS:
        lines += ["by row; the overall change is the length of all changes of the row taken as one vector:"]
        for change in changes:
            lines += ["", *summary(change)]
        lines += ["", "values:" if most is None or most >= weights else f"the {most} largest changes:"]
    for change, entries in first_by_size(changes, most):
        lines += ["", tensor_line(change) if weights <= MAX_LISTED_WEIGHTS else change.tensor.name]
        rows = [(format_index(entry), *values(entry)) for entry in entries]
        wide = [max(len(row[column]) for row in rows) for column in range(3)]
        lines += [f"  {a:<{wide[0]}}  {b:>{wide[1]}} → {c:>{wide[2]}}" for a, b, c in rows]
    if most is not None and weights > most:
        lines += ["", f"… and {weights - most:,} more{hint}"]
    return "\n".join(map(printable, lines))


def summary(change: TensorChange) -> list[str]:
    """A tensor in a few lines: how much changes in all, and in which rows."""
    rows = row_changes(change)
    lines = [f"{tensor_line(change)}, changed by {size_of(change.entries):.3g} overall"]
    if len(change.tensor.shape) > 1:
        head = ("", "weights", "overall change", "largest change")
        cells = [head, *((row.name, *summed_up(row)) for row in rows[:MAX_SUMMARY_ROWS])]
        wide = [max(len(one[column]) for one in cells) for column in range(4)]
        lines += [f"  {one[0]:<{wide[0]}}  {'  '.join(map(str.rjust, one[1:], wide[1:]))}" for one in cells]
        more = rows[MAX_SUMMARY_ROWS:]
        if more:
            inside = pluralise(sum(row.weights for row in more), "weight")
            lines.append(f"  … and {pluralise(len(more), f'more {more[0].word}')} with {inside}")
    return lines


def _origin_lines(patch: Patch) -> list[str]:
    """Lines about the patch's evidence and provenance, and an empty one behind them."""
    lines: list[str] = []
    pairs = [*verdict(patch.evidence), *facts(patch.provenance)]
    if pairs:
        wide_name = max(len(name) for name, _ in pairs)
        margin = " " * (wide_name + 2)
        for name, value in pairs:
            lines += textwrap.wrap(
                value,
                WIDTH,
                initial_indent=f"{name:<{wide_name}}  ",
                subsequent_indent=margin,
                break_long_words=False,
                break_on_hyphens=False,
            )
        lines.append("")
    return lines


def as_html(patch: Patch) -> str:
    """The patch as a fragment of HTML for notebooks."""
    above = f"Patch: {headline(patch.changes)}"
    rows = [
        (change.tensor.name, format_index(entry), *values(entry))
        for change, entries in first_by_size([change for change in patch.changes if change.entries], MAX_LISTED_WEIGHTS)
        for entry in entries
    ]
    for change in patch.changes:
        rows += [] if change.entries else [(tensor_line(change), "", "", "")]
    if len(patch.entries) > MAX_LISTED_WEIGHTS:
        parts = [f"{change.tensor.name} {_rows(change)}" for change in patch.changes if change.entries]
        above += f" ({'; '.join(parts)}); the {MAX_LISTED_WEIGHTS} largest changes"
        rows.append((f"… and {len(patch.entries) - MAX_LISTED_WEIGHTS:,} more", "", "", ""))
    below = "; ".join(f"{name}: {value}" for name, value in [*facts(patch.provenance), *verdict(patch.evidence)])
    return table(["tensor", "index", "old", "new"], rows, above=above, below=below)


def _rows(change: TensorChange) -> str:
    rows = row_changes(change)
    weights = pluralise(len(change.entries), "weight")
    return f"{weights} in {pluralise(len(rows), rows[0].word)}" if rows[0].word else weights


def headline(changes: Sequence[TensorChange]) -> str:
    """`3 weights in 2 tensors`."""
    weights = sum(change.weights for change in changes)
    if not weights:
        return "no weights change"
    return f"{pluralise(weights, 'weight')} in {pluralise(len(changes), 'tensor')}"


def tensor_line(change: TensorChange) -> str:
    """`fc2.weight, float32 (10, 100), 3 of 1,000 weights`, how it changes as a whole, and how often it is used."""
    tensor = change.tensor
    size = pluralise(prod(tensor.shape), "weight")
    line = f"{tensor.name}, {tensor.dtype} {tensor.shape}, {change.weights:,} of {size}{change.description}"
    return line if tensor.uses == 1 else f"{line}, used {tensor.uses} times: every use changes"


def format_index(entry: WeightChange) -> str:
    """`[0, 13]`."""
    return f"[{', '.join(map(str, entry.address.index))}]"


def values(entry: WeightChange) -> tuple[str, str]:
    """Old and new value, in the fewest digits that tell them."""
    return repr(entry.storage.shortest(entry.old)), repr(entry.storage.shortest(entry.new))


def facts(provenance: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The plain values in a provenance, and the patches it was stacked or derived from."""
    pairs = [(name, _plain(value)) for name, value in provenance.items() if isinstance(value, (str, int, float, list))]
    pairs = [(name, value) for name, value in pairs if value and name != "stack"]
    parts = provenance.get("stack")
    if isinstance(parts, list):
        pairs.append(("stacked", pluralise(len(parts), "patch", "patches")))
    origin = provenance.get("derived_from")
    if isinstance(origin, Mapping):
        for tensor in origin.get("tensors", ()):
            pairs.append(("derived", f"{tensor.get('from')} → {tensor.get('to')} ({tensor.get('how')})"))
    return pairs


def verdict(evidence: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The verdict and the held-out counts a patch was accepted with."""
    words = (("heading", "verdict"), ("sentence", "because"), ("balance", "price"))
    known = {"heading": evidence.get("verdict"), **evidence}
    pairs = [(word, str(known[name])) for name, word in words if known.get(name)]
    for name in ("seen", "held_out"):
        part = evidence.get(name)
        if isinstance(part, Mapping) and {"repaired", "negatives", "broken", "positives"} <= part.keys():
            counts = (
                f"repaired {part['repaired']} of {part['negatives']}, broke {part['broken']} of {part['positives']}"
            )
            pairs.append((name.replace("_", " "), counts))
    return pairs


def _plain(value: Any) -> str:
    if isinstance(value, list):
        return (
            ", ".join(str(item) for item in value) if all(isinstance(item, (str, int, float)) for item in value) else ""
        )
    return str(value)
