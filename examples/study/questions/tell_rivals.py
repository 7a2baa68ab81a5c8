"""RQ5 as tables and a figure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from arachne.text import pluralise
from examples.study.questions import figures, published
from examples.study.questions.columns import HEADS, three
from examples.study.questions.kept import DONE, Kept
from examples.study.questions.reading import EQUAL, Outcome, Pair, by_case, of, outcome, pairs
from examples.study.questions.repairing import DEFAULT, DEFAULT_BUDGET, FAITHFUL, PARTS
from examples.study.questions.rq5 import SUBJECTS as NETWORKS
from examples.study.questions.rq5 import WAYS
from examples.study.questions.tables import Outcomes, number, points, rate_at, table


def rq5(kept: Sequence[Kept], pictures: Path | None, *, short: bool = False) -> str:
    """Every way over the faults it was run on: repaired, errors left, accuracy, time; not by network where `short`."""
    rows = [row for way in WAYS for row in _rows(kept, way)]
    first = [one for one in kept if one.outcome == DONE and one.cell.case == "1"]
    groups = {}
    for subject in dict.fromkeys(one.cell.subject for one in first):
        own = {way: [1 - outcome(one).repair for one in of(first, subject, way)] for way in WAYS}
        groups[subject] = {way: values for way, values in own.items() if values}
    if pictures is not None and groups:
        figures.bars(pictures / "study-rq5.svg", groups, y="share of the fault left on held-out inputs")
    heads = [
        "way",
        "run on",
        "repaired @ broken",
        "same held-out damage",
        "at 0.5 %",
        "errors left",
        "accuracy, points",
    ]
    whole = table([*heads, "seconds"], rows)
    return whole if short else f"{whole}\n\n{_by_network(kept)}"


def _rows(kept: Sequence[Kept], way: str) -> Iterator[list[str]]:
    """One row, or one more for each part of the default; whatever has several patches is read at three damages."""
    own = [one for one in kept if (one.cell.way, one.outcome) == (way, DONE)]
    if not own:
        return
    seconds = f"{np.mean([one.seconds for one in own]):.0f}"
    if not any("ladder" in one.found for one in own):
        outcomes: dict[str, list[Outcome]] = {}
        for one in own:
            outcomes.setdefault(f"{one.cell.subject} {one.cell.case}", []).append(outcome(one))
        name = way if way == FAITHFUL else f"`{way}`"
        yield [name, _run_on(outcomes), rate_at(outcomes), "", "", *_count_left(outcomes), seconds]
        return
    for ladder in ("ladder", *PARTS) if way == DEFAULT else ("ladder",):
        both = [pair for pair in pairs(kept, (FAITHFUL, way)) if ladder in pair.default.found]
        if both:
            name = f"`{ladder}` of the default" if ladder in PARTS else "default" if way == DEFAULT else f"`{way}`"
            equal, small = (_by_case(both, ladder, budget) for budget in (EQUAL, DEFAULT_BUDGET))
            level = by_case([pair.default for pair in both], [pair.level_repair(ladder) for pair in both])
            told = [rate_at(equal), number(float(np.mean(level))), rate_at(small), *_count_left(equal)]
            yield [name, _run_on(equal), *told, "in the default's" if ladder in PARTS else seconds]


def _by_case(both: Sequence[Pair], ladder: str, budget: float | str) -> dict[str, list[Outcome]]:
    found: dict[str, list[Outcome]] = {}
    for pair in both:
        key = f"{pair.faithful.cell.subject} {pair.faithful.cell.case}"
        found.setdefault(key, []).append(pair.default_at(budget, ladder))
    return found


def _run_on(outcomes: Outcomes) -> str:
    return f"{pluralise(len(outcomes), 'fault')}, {pluralise(sum(map(len, outcomes.values())), 'run')}"


def _count_left(outcomes: Outcomes) -> list[str]:
    """Inputs with the fault before and after, and the change of accuracy."""
    every = [one for own in outcomes.values() for one in own]
    before, after = np.mean([one.negatives for one in every]), np.mean([one.negatives - one.repaired for one in every])
    return [f"{before:.1f} → {after:.1f}", points(outcomes, lambda one: one.gain)]


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
