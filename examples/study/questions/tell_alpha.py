"""RQ4 as a table and a figure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from examples.study.questions import figures, published
from examples.study.questions.columns import NAMES, subjects_in
from examples.study.questions.kept import Kept
from examples.study.questions.reading import EQUAL, Pair, of, outcome
from examples.study.questions.repairing import DEFAULT, DEFAULT_BUDGET, FAITHFUL
from examples.study.questions.rq4 import USUAL
from examples.study.questions.tables import mean_over, number, points, table

SHOWN = (1, 10)
"""Values of alpha that have a row; the figure has all."""


def rq4(kept: Sequence[Kept], pictures: Path | None) -> str:
    """Points that class a, class b and all inputs gain, by alpha."""
    rows, groups = [], {}
    for subject in subjects_in(kept):
        name = NAMES.get(subject, subject)
        series: dict[str, tuple[list[float], list[float]]] = {}
        for alpha in sorted({int(one.cell.case) for one in kept if one.cell.subject == subject}):
            own = {"": [outcome(one) for one in of(kept, subject, FAITHFUL, str(alpha))]}
            both = _pairs(kept, subject, str(alpha))
            if not own[""]:
                continue
            theirs = published.ALPHA.get(subject, {}).get(alpha)
            paper = "" if theirs is None else f"{theirs[0]:+.1f}, {theirs[1]:+.1f}"
            changes = [lambda one: one.class_gain(0), lambda one: one.class_gain(1), lambda one: one.gain]
            told = [points(own, change) for change in changes]
            defaults = [_class_gains(both, budget) for budget in (EQUAL, DEFAULT_BUDGET)]
            if alpha in SHOWN:
                rows.append([name, str(alpha), str(len(own[""])), paper, *told, *defaults])
            for line, change in zip(("class a", "class b", "all"), changes, strict=True):
                xs, ys = series.setdefault(line, ([], []))
                xs.append(alpha)
                ys.append(mean_over(own, change).value)
        groups[name] = series
    if pictures is not None and groups:
        figures.lines(pictures / "study-rq4.svg", groups, x="alpha", y="accuracy, points gained on held-out inputs")
    heads = ["subject", "alpha", "runs", "paper: a, b", "faithful: class a", "class b", "all"]
    whole = table([*heads, "default, no more damage: a, b", "default at 0.5 %: a, b"], rows)
    return f"{whole}{_same_patches(kept)}"


def _pairs(kept: Sequence[Kept], subject: str, alpha: str) -> list[Pair]:
    """The paper's repair with this alpha and the default of the same seed, which does not depend on alpha."""
    defaults = {one.cell.seed: one for one in of(kept, subject, DEFAULT, str(USUAL))}
    return [
        Pair(one, defaults[one.cell.seed]) for one in of(kept, subject, FAITHFUL, alpha) if one.cell.seed in defaults
    ]


def _same_patches(kept: Sequence[Kept]) -> str:
    """How often the default's patch is the same with another alpha, where that was tried with the same default."""
    same = [
        one.found["patch"] == usual.found["patch"]
        for subject in subjects_in(kept)
        for usual in of(kept, subject, DEFAULT, str(USUAL))
        for one in of(kept, subject, DEFAULT)
        if (one.cell.seed, one.made_with) == (usual.cell.seed, usual.made_with) and one.cell.case != usual.cell.case
    ]
    if not same:
        return ""
    return f"\n\nThe default's patch with another alpha than {USUAL} is the same in {sum(same)} of {len(same)} runs."


def _class_gains(both: Sequence[Pair], budget: float | str) -> str:
    if not both:
        return "not run"
    told = [pair.default_at(budget) for pair in both]
    return ", ".join(number(float(np.mean([one.class_gain(which) for one in told])), 1, sign=True) for which in (0, 1))
