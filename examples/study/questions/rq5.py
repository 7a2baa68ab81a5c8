"""RQ5: the default and the paper's repair beside every rival: errors left, accuracy, time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from examples.study.questions.kept import Cell
from examples.study.questions.repairing import (
    DEFAULT,
    FAITHFUL,
    GL,
    RIVALS,
    RS,
    TRAINED,
    open_subject,
    rank_confusions,
    run_repair,
    training_of,
)
from examples.study.questions.working import Question, Scope

SUBJECTS = ("fm-cnn", "c10-cnn1", "c10-cnn2", "c10-cnn3", "gtsrb-idsia")
WAYS = (FAITHFUL, DEFAULT, GL, RS, *RIVALS)
FAULTS = 3


def cells(scope: Scope) -> Iterator[Cell]:
    """The three most frequent confusions of each network; rivals that train run once, as in the paper."""
    ranks = range(1, 1 + (scope.faults or (1 if scope.quick else FAULTS)))
    for subject in scope.of(SUBJECTS[:1] if scope.quick and not scope.subjects else SUBJECTS):
        for seed in scope.seeds(10):
            for rank in ranks:
                ways = [way for way in scope.in_ways(WAYS) if not seed or way not in TRAINED]
                yield from (Cell("rq5", subject, way, str(rank), seed) for way in ways)


def make(cell: Cell) -> dict[str, Any]:
    """Repair one confusion in one way."""
    both = open_subject(cell.subject, cell.seed)
    target = rank_confusions(cell.subject)[int(cell.case) - 1]
    training = training_of(cell.subject) if cell.way in TRAINED else None
    _, found = run_repair(cell.way, *both, target, seed=cell.seed, training=training)
    return found


RQ5 = Question("rq5", cells, make)
