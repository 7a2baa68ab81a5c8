"""Results as HTML for a notebook: small enough for a cell, with the numbers of every other report."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from arachne.evidence import ChangedInputs, Evidence, PartEvidence
from arachne.evidence.verdict import capitalise
from arachne.report.markup import table
from arachne.report.pictures import show_inputs
from arachne.text import p_value, percent, percent_change, pluralise

if TYPE_CHECKING:
    from arachne.causes import Cause
    from arachne.data.labelled import LabelledData
    from arachne.data.part import Part
    from arachne.evidence import Flips
    from arachne.evidence.scan import Scan
    from arachne.evidence.survival import Survival
    from arachne.localise import Localisation
    from arachne.patch import Patch

MOST_PICTURES = 6
MOST_WEIGHTS = 5
MAX_TABLE_ROWS = 50


def result_html(evidence: Evidence, patch: Patch | None = None, held_out: Part | None = None) -> str:
    """The verdict, its numbers, what changed, and a few of the inputs fixed and broken."""
    parts = {"seen": evidence.seen, evidence.basis: evidence.held_out}
    shown = {name: part for name, part in parts.items() if part is not None}
    columns = [_cells(part) for part in shown.values()]
    rows = [(label, *(cells[label] for cells in columns)) for label in columns[0]]
    verdict = evidence.verdict
    return (
        f"<div><p><b>{escape(capitalise(verdict.heading))}.</b> {escape(capitalise(verdict.sentence))}.</p>"
        f"<p>{escape(capitalise(verdict.balance))}</p>"
        + table(["", *shown], rows, below=" ".join(evidence.notes))
        + (table(["weight", "old", "new"], _weights(patch)) if patch is not None else "")
        + (_pictures("Fixed", evidence.held_out.fixed, held_out) if held_out is not None else "")
        + (_pictures("Broken", evidence.held_out.damaged, held_out) if held_out is not None else "")
        + "</div>"
    )


def scan_html(scan: Scan) -> str:
    """The most frequent mistakes of a model."""
    rows = [(fault.target, f"{fault.count:,}", percent(fault.share)) for fault in scan.faults[:MAX_TABLE_ROWS]]
    wrong = sum(fault.count for fault in scan.faults)
    above = f"accuracy {percent(scan.accuracy)}: {wrong:,} of {pluralise(len(scan.data), 'input')} wrong"
    rarer = len(scan.faults) - MAX_TABLE_ROWS
    below = f"and {pluralise(rarer, 'rarer kind')}" if rarer > 0 else ""
    causes = table(["cause", "what the errors share"], [(cause.target, cause.sentence) for cause in scan.causes])
    return (causes if scan.causes else "") + table(
        ["target", "count", "share of mistakes"], rows, above=above, below=below
    )


def cause_html(cause: Cause) -> str:
    """A cause's sentence, and a few of its errors."""
    rows = cause.members[:MOST_PICTURES].tolist()
    shown = show_inputs(cause.data, rows)
    figures = "".join(
        _figure(one, cause.data.class_name(int(cause.data.labels[row])), cause.data.class_name(int(predicted)))
        for one, row, predicted in zip(shown, rows, cause.predictions[rows].tolist(), strict=True)
        if one["kind"] == "image"
    )
    gallery = f'<div style="display:flex;flex-wrap:wrap;gap:8px">{figures}</div>' if figures else ""
    tried = "" if cause.experiment is None else f"<p>{escape(cause.experiment.sentence)}.</p>"
    return f"<div><p><b>{escape(cause.target)}</b> {escape(cause.sentence)}.</p>{tried}{gallery}</div>"


def localisation_html(found: Localisation) -> str:
    """The first suspects with both scores."""
    pairs = zip(
        found.suspects.first_addresses(MAX_TABLE_ROWS), found.suspects.values[:MAX_TABLE_ROWS].tolist(), strict=True
    )
    rows = [
        (address, f"{value:.6g}", *(f"{score:.4g}" for score in (found.score(address) if found.scores else ())))
        for address, value in pairs
    ]
    headings = ["weight", "value", *(("gradient loss", "forward impact") if found.scores else ())]
    more = f"and {len(found.suspects) - MAX_TABLE_ROWS:,} more" if len(found.suspects) > MAX_TABLE_ROWS else ""
    return table(headings, rows, above=found.headline, below=more)


def data_html(data: LabelledData) -> str:
    """How many inputs of each class there are, and the arrays and columns they come with."""
    labels, counts = np.unique(data.labels, return_counts=True)
    rows = [
        (data.class_name(int(label)), f"{count:,}", percent(count / len(data)))
        for label, count in zip(labels[:MAX_TABLE_ROWS].tolist(), counts.tolist(), strict=False)
    ]
    more = (
        f"and {pluralise(len(labels) - MAX_TABLE_ROWS, 'more class', 'more classes')}"
        if len(labels) > MAX_TABLE_ROWS
        else ""
    )
    columns = f"columns: {', '.join(data.columns)}" if data.columns else ""
    return table(["class", "inputs", "share"], rows, above=str(data), below="; ".join(filter(None, (more, columns))))


def flips_html(flips: Flips) -> str:
    """Which predictions flip into which, the most frequent first."""
    rows = [(f"{before} → {after}", f"{count:,}") for before, after, count in flips.pairs[:MAX_TABLE_ROWS]]
    rarer = len(flips.pairs) - MAX_TABLE_ROWS
    below = f"and {pluralise(rarer, 'rarer kind')}" if rarer > 0 else ""
    return table(["class before → after", "inputs"], rows, above=flips.sentence, below=below)


def survival_html(survival: Survival) -> str:
    """Compare a patch's effect in its own model and where that model ended up."""
    here, there = _cells(survival.here.held_out), _cells(survival.there.held_out)
    verdicts = ("verdict", survival.here.verdict.word, survival.there.verdict.word)
    rows = [verdicts, *((label, here[label], there[label]) for label in here)]
    return table(["", "here", survival.where], rows, above=survival.sentence, below=survival.note)


def _cells(part: PartEvidence) -> dict[str, str]:
    return {
        "repaired": f"{part.repaired:,} of {part.negatives:,}: {percent(part.repair_rate)}",
        "broken": f"{part.broken:,} of {part.positives:,}: {percent(part.break_rate)}",
        "fault, all inputs": (f"{part.target_errors_before:,} → {part.target_errors_after:,}, {p_value(part.sign_p)}"),
        "accuracy": percent_change(part.accuracy_before, part.accuracy_after),
    }


def _weights(patch: Patch) -> Iterable[tuple[str, str, str]]:
    for entry in patch.entries[:MOST_WEIGHTS]:
        yield str(entry.address), f"{entry.old:.6g}", f"{entry.new:.6g}"
    if len(patch.entries) > MOST_WEIGHTS:
        yield f"and {len(patch.entries) - MOST_WEIGHTS:,} more", "", ""


def _pictures(title: str, changed: ChangedInputs, held_out: Part) -> str:
    positions = changed.positions[:MOST_PICTURES].tolist()
    shown = show_inputs(held_out.data, positions)
    if not shown or shown[0]["kind"] != "image":
        return ""
    figures = "".join(
        _figure(one, held_out.class_names[int(old)], held_out.class_names[int(new)])
        for one, old, new in zip(shown, changed.before, changed.after, strict=False)
    )
    return f'<p>{title}: {len(changed):,}</p><div style="display:flex;flex-wrap:wrap;gap:8px">{figures}</div>'


def _figure(shown: dict[str, Any], before: str, after: str) -> str:
    words = escape(f"{before} → {after}", quote=True)
    style = "width:72px;height:72px;object-fit:contain;image-rendering:pixelated"
    caption = f'<figcaption style="font-size:11px;max-width:90px;overflow-wrap:anywhere">{words}</figcaption>'
    return f'<figure style="margin:0"><img style="{style}" src="{shown["src"]}" alt="{words}">{caption}</figure>'
