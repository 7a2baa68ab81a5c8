"""RQ5 as tables and a figure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from examples.study.questions import figures, published
from examples.study.questions.columns import HEADS, three
from examples.study.questions.kept import DONE, Kept
from examples.study.questions.reading import EQUAL, Outcome, of, outcome, pairs
from examples.study.questions.repairing import DEFAULT, DEFAULT_BUDGET, FAITHFUL, PARTS
from examples.study.questions.rq5 import SUBJECTS as NETWORKS
from examples.study.questions.rq5 import WAYS
from examples.study.questions.tables import points, rate_at, table


def rq5(kept: Sequence[Kept], pictures: Path | None) -> str:
    """Every way over the faults it was run on: repaired, errors left, accuracy, time."""
    rows, groups = [], {}
    for name, ladder, budget, own in _contenders(kept):
        by_case = _by_case(own, ladder, budget, kept)
        if not by_case:
            continue
        errors = [one.negatives - one.repaired for told in by_case.values() for one in told]
        before = [one.negatives for told in by_case.values() for one in told]
        seconds = f"{np.mean([one.seconds for one in own]):.0f}" if ladder != "part" else "in the default's"
        faults = f"{len(by_case)} faults, {sum(map(len, by_case.values()))} runs"
        left = f"{np.mean(before):.1f} → {np.mean(errors):.1f}"
        rows.append([name, faults, rate_at(by_case), left, points(by_case, lambda one: one.gain), seconds])
    first = [one for one in kept if one.outcome == DONE and one.cell.case == "1"]
    for subject in dict.fromkeys(one.cell.subject for one in first):
        own = {way: [1 - outcome(one).repair for one in of(first, subject, way)] for way in WAYS}
        groups[subject] = {way: values for way, values in own.items() if values}
    if pictures is not None and groups:
        figures.bars(pictures / "study-rq5.svg", groups, y="share of the fault left on held-out inputs")
    heads = ["way", "run on", "repaired @ broken", "errors left", "accuracy, points", "seconds"]
    return f"{table(heads, rows)}\n\n{_by_network(kept)}"


def _contenders(kept: Sequence[Kept]) -> Iterator[tuple[str, str, float | str | None, list[Kept]]]:
    """Name, which candidates, which budget, and the runs."""
    every = [one for one in kept if one.outcome == DONE]
    for way in WAYS:
        own = [one for one in every if one.cell.way == way]
        if way == DEFAULT:
            yield "default, no more damage than faithful", "ladder", EQUAL, own
            yield "default at 0.5 %", "ladder", DEFAULT_BUDGET, own
            for part in PARTS:
                yield f"`{part}` of the default, no more damage than faithful", part, EQUAL, own
        elif any("ladder" in one.found for one in own):
            yield f"`{way}`, no more damage than faithful", "ladder", EQUAL, own
            yield f"`{way}` at 0.5 %", "ladder", DEFAULT_BUDGET, own
        else:
            yield way if way == FAITHFUL else f"`{way}`", "own", None, own


def _by_case(
    own: Sequence[Kept], ladder: str, budget: float | str | None, kept: Sequence[Kept]
) -> dict[str, list[Outcome]]:
    found: dict[str, list[Outcome]] = {}
    if budget is None:
        for one in own:
            found.setdefault(f"{one.cell.subject} {one.cell.case}", []).append(outcome(one))
        return found
    ways = {one.cell.way for one in own}
    for pair in pairs(kept, (FAITHFUL, ways.pop())) if ways else ():
        if ladder in pair.default.found:
            key = f"{pair.faithful.cell.subject} {pair.faithful.cell.case}"
            found.setdefault(key, []).append(pair.default_at(budget, ladder))
    return found


def _by_network(kept: Sequence[Kept]) -> str:
    rows = []
    for subject in NETWORKS:
        both = [pair for pair in pairs(kept) if pair.faithful.cell.subject == subject]
        if not both:
            continue
        targets = ", ".join(f"`{name}`" for name in dict.fromkeys(pair.faithful.found["target"] for pair in both))
        seconds = [np.mean([one.seconds for one in of(kept, subject, way)] or [np.nan]) for way in (FAITHFUL, DEFAULT)]
        apricot = of(kept, subject, "apricot")
        seconds.append(np.mean([one.seconds for one in apricot]) if apricot else np.nan)
        told = ", ".join("-" if np.isnan(own) else f"{own:.0f}" for own in seconds)
        theirs = published.SECONDS[subject]
        rates = [rate_at(outcomes) for outcomes in three(both)]
        rows.append([subject, targets, *rates, told, f"{theirs[0]}, {theirs[1]}"])
    heads = ["network", "faults", *HEADS, "seconds: faithful, default, apricot", "paper's seconds: its own, Apricot"]
    return table(heads, rows)
