"""Held-out repair at equal held-out damage, over all faults that both were run on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from arachne.model.values import Array
from examples.study.questions import figures, published
from examples.study.questions.columns import HEADS, NAMES, subjects_in, three
from examples.study.questions.kept import Kept
from examples.study.questions.reading import Pair, at, by_case, mean, outcome, pairs
from examples.study.questions.repairing import BUDGETS, PARTS
from examples.study.questions.tables import number, rate_at, table, with_interval
from examples.study.summary import RESAMPLES, Mean

TOP = 10
Lines = dict[str, list[Kept]]
"""All lines by question."""


def headline(lines: Lines) -> str:
    """Held-out repair at equal held-out damage, over all faults that both were run on."""
    rows = []
    for name, both, paper in _groups(lines):
        if not both:
            continue
        found = three(both)
        level = by_case([pair.default for pair in both], [pair.level_repair() for pair in both])
        more = by_case(
            [pair.default for pair in both], [pair.level_repair() - outcome(pair.faithful).repair for pair in both]
        )
        told = [rate_at(outcomes) for outcomes in found]
        level_told = [number(float(np.mean(level))), with_interval(mean(more), sign=True)]
        level_told.append(with_interval(one_budget(both), sign=True))
        rows.append([name, f"{len(found[0])}, {len(both)}", paper, told[0], *level_told, *told[1:]])
    heads = ["subject", "faults, runs", "paper's RR_eval", "faithful", "default, same held-out damage", "more repaired"]
    heads.append("more, at one budget for all")
    return table([*heads, *HEADS[1:]], rows)


def one_budget(both: Sequence[Pair]) -> Mean:
    """How much more the default repairs where one budget for all faults breaks as much in the mean as the paper's does.

    A run's own damage is often a handful of inputs, and repairs grow less and less with damage; so a reading at each
    run's damage is below one at their mean. The interval is from resampling faults, or runs of a single one.
    """
    runs, theirs = [pair.default for pair in both], [outcome(pair.faithful) for pair in both]
    damage = np.array(by_case(runs, [one.damage for one in theirs]))
    repair = np.array(by_case(runs, [one.repair for one in theirs]))
    own = [[at(one, budget) for one in runs] for budget in BUDGETS]
    damages = np.array([by_case(runs, [one.damage for one in row]) for row in own])
    repairs = np.array([by_case(runs, [one.repair for one in row]) for row in own])

    def ahead(rows: Array) -> float:
        found = np.interp(damage[rows].mean(), [0, *damages[:, rows].mean(axis=1)], [0, *repairs[:, rows].mean(axis=1)])
        return float(found - repair[rows].mean())

    drawn = np.random.default_rng(0).integers(0, len(damage), (RESAMPLES, len(damage)))
    low, high = np.quantile([ahead(rows) for rows in drawn], (0.025, 0.975))
    return Mean(ahead(np.arange(len(damage))), float(low), float(high), len(damage))


def draw(lines: Lines, path: Path) -> bool:
    """Repaired against broken: the default and parts of it through their budgets, the paper's repair a dot."""
    groups: dict[str, dict[str, tuple[list[float], list[float]]]] = {}
    for question in ("rq3", "rq5"):
        for subject in subjects_in(lines[question]):
            both = [pair for pair in pairs(lines[question]) if pair.faithful.cell.subject == subject]
            if both:
                groups[f"{question.upper()} {NAMES.get(subject, subject)}"] = _panel(both)
    if groups:
        y = "repaired, share of held-out negatives"
        figures.lines(path, groups, x="broken, % of held-out positives", y=y)
    return bool(groups)


def _panel(both: Sequence[Pair]) -> dict[str, tuple[list[float], list[float]]]:
    faithful = [outcome(pair.faithful) for pair in both]
    damage = 100 * float(np.mean([one.damage for one in faithful]))
    repair = float(np.mean([one.repair for one in faithful]))
    curves = {"default": _curve(both, "ladder"), **{part: _curve(both, part) for part in PARTS}}
    return {"faithful": ([damage], [repair]), **{name: curve for name, curve in curves.items() if curve[0]}}


def _curve(both: Sequence[Pair], ladder: str) -> tuple[list[float], list[float]]:
    """Means over all runs at every budget."""
    able = [pair.default for pair in both if ladder in pair.default.found]
    told = [[at(one, budget, ladder) for one in able] for budget in BUDGETS] if able else []
    return (
        [100 * float(np.mean([one.damage for one in own])) for own in told],
        [float(np.mean([one.repair for one in own])) for own in told],
    )


def _groups(lines: Lines) -> Iterator[tuple[str, list[Pair], str]]:
    yield "FM, reference model, `6:0`", first(lines["reference"], "fm-reference"), "0.645 @ 3.49 %, authors' code"
    for subject in ("fm-mlp", "c10-cnn", "gtsrb-cnn"):
        theirs = published.CONFUSIONS[subject]
        eval_rates = [rate for _, rate in theirs.values()]
        theirs_first = f"{eval_rates[0]:.2f} ({next(iter(theirs))})"
        yield f"RQ3 {NAMES[subject]}, most frequent", first(lines["rq3"], subject), theirs_first
        every = [pair for pair in pairs(lines["rq3"]) if pair.faithful.cell.subject == subject]
        top = [pair for pair in every if int(pair.faithful.cell.case) <= TOP]
        yield f"RQ3 {NAMES[subject]}, ten most frequent", top, f"{np.mean(eval_rates):.2f}"
        if len(every) > len(top):
            yield f"RQ3 {NAMES[subject]}, all that were run", every, ""
    yield "RQ5, all that were run", pairs(lines["rq5"]), "0.61"
    yield "RQ6 LFW, women read as men", pairs(lines["rq6"]), ""
    yield "RQ7 tweets, negative read as neutral", pairs(lines["rq7"]), ""


def first(kept: Sequence[Kept], subject: str) -> list[Pair]:
    """The runs on a subject's most frequent confusion."""
    return [pair for pair in pairs(kept) if (pair.faithful.cell.subject, pair.faithful.cell.case) == (subject, "1")]
