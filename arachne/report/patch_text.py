"""A patch for people: the changed weights by layer, old → new, and the evidence, as text and as HTML."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from arachne.dtypes import shortest
from arachne.report.markup import table
from arachne.report.printable import printable
from arachne.wording import counted

if TYPE_CHECKING:
    from arachne.patch import Patch, WeightChange
    from arachne.patch.change import TensorChange

WIDTH = 80
"""How wide the text is."""

MOST = 30
"""How many weights of one tensor are shown."""


def as_text(patch: Patch) -> str:
    """The patch as lines of plain text."""
    lines = [headline(patch.changes)]
    for change in patch.changes:
        lines += ["", tensor_line(change)]
        rows = [(place(entry), *values(entry)) for entry in change.entries[:MOST]]
        wide = [max(len(row[column]) for row in rows) for column in range(3)]
        lines += [f"  {a:<{wide[0]}}  {b:>{wide[1]}} → {c:>{wide[2]}}" for a, b, c in rows]
        lines += [f"  … and {len(change.entries) - MOST:,} more"] if len(change.entries) > MOST else []
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
    return "\n".join(map(printable, lines))


def as_html(patch: Patch) -> str:
    """The patch as a fragment of HTML for notebooks."""
    rows = []
    for change in patch.changes:
        rows += [(change.tensor.name, place(entry), *values(entry)) for entry in change.entries[:MOST]]
        if len(change.entries) > MOST:
            rows.append((f"… and {len(change.entries) - MOST:,} more in {change.tensor.name}", "", "", ""))
    below = "; ".join(f"{name}: {value}" for name, value in [*facts(patch.provenance), *verdict(patch.evidence)])
    return table(["tensor", "index", "old", "new"], rows, above=f"Patch: {headline(patch.changes)}", below=below)


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
