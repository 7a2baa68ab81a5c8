"""The three columns beside the paper's, and the names of subjects."""

from __future__ import annotations

from collections.abc import Sequence

from examples.study.questions.kept import DONE, Kept
from examples.study.questions.reading import EQUAL, Outcome, Pair, outcome
from examples.study.questions.repairing import DEFAULT_BUDGET
from examples.study.questions.tables import rate_at

NAMES = {"fm-mlp": "FM", "c10-cnn": "C10", "gtsrb-cnn": "GTSRB", "fm-reference": "FM, reference model"}


SUBJECTS = ("fm-mlp", "c10-cnn", "gtsrb-cnn")


HEADS = ("faithful", "default, no more damage", "default at 0.5 %")


def subjects_in(kept: Sequence[Kept]) -> list[str]:
    """The subjects that have a finished run, in the paper's order."""
    present = {one.cell.subject for one in kept if one.outcome == DONE}
    return [name for name in SUBJECTS if name in present] + sorted(present - set(SUBJECTS))


def three(own: Sequence[Pair]) -> tuple[dict[str, list[Outcome]], ...]:
    """By case: the paper's repair, the default at its damage, and the default at its own budget."""
    found: tuple[dict[str, list[Outcome]], ...] = ({}, {}, {})
    for pair in own:
        told = (outcome(pair.faithful), pair.default_at(EQUAL), pair.default_at(DEFAULT_BUDGET))
        for by_case, one in zip(found, told, strict=True):
            by_case.setdefault(f"{pair.faithful.cell.subject} {pair.faithful.cell.case}", []).append(one)
    return found


def columns(own: Sequence[Pair]) -> list[str]:
    """Write counts as repaired @ broken."""
    return [rate_at(outcomes) for outcomes in three(own)]
