"""RQ1 as a table and a figure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from examples.study.questions import figures, published
from examples.study.questions.columns import NAMES, subjects_in
from examples.study.questions.kept import Kept
from examples.study.questions.reading import of
from examples.study.questions.rq1 import LOCALISERS
from examples.study.questions.tables import table


def rq1(kept: Sequence[Kept], pictures: Path | None) -> str:
    """ROC-AUC of every localiser, and the curves."""
    rows, groups = [], {}
    for subject in subjects_in(kept):
        own = of(kept, subject, "ranks")
        theirs = published.AUC.get(subject, {})
        changed = [100 * one.found["changed"] / one.found["inputs"] for one in own]
        told = [
            f"{np.mean([one.found['auc'][name] for one in own]):.4f}"
            + (f" ({theirs[name]:.4f})" if name in theirs else "")
            for name in LOCALISERS
        ]
        rows.append([NAMES.get(subject, subject), str(len(own)), f"{np.mean(changed):.2f}", *told])
        groups[NAMES.get(subject, subject)] = {name: _curve(own, name) for name in LOCALISERS}
    if pictures is not None and groups:
        x, y = "share of weights looked at", "share of runs in which the faulty weight is among them"
        figures.lines(pictures / "study-rq1.svg", groups, x=x, y=y, log=True, step=True)
    return table(["subject", "runs", "changed, %", *LOCALISERS], rows)


def _curve(own: Sequence[Kept], localiser: str) -> tuple[list[float], list[float]]:
    """How many of the faulty weights are found within which share of all weights."""
    least = 1 / max(one.found["weights"] for one in own)
    shares = sorted(max(least, one.found["ranks"][localiser] / one.found["weights"]) for one in own)
    found = [(place + 1) / len(shares) for place in range(len(shares))]
    return [least, *shares, 1.0], [0.0, *found, 1.0]
