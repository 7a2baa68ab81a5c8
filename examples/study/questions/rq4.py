"""RQ4: what alpha does to the accuracy of the class that is repaired, of the class it is read as, and of all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from examples.study.questions.kept import Cell
from examples.study.questions.repairing import DEFAULT, FAITHFUL, open_subject, rank_confusions, run_repair
from examples.study.questions.working import Question, Scope

SUBJECTS = ("fm-mlp", "c10-cnn", "gtsrb-cnn")
WAYS = (FAITHFUL, DEFAULT)
ALPHAS = (1, 2, 3, 4, 5, 6, 8, 10, 15, 20)
FEWER = (1, 4, 10, 20)
"""Where a repair takes seconds rather than one."""

QUICK = (1, 10)
USUAL = 10
"""The default takes no alpha; what it finds stands in the row of this one."""


def cells(scope: Scope) -> Iterator[Cell]:
    """The most frequent confusion with every alpha."""
    for subject in scope.of(SUBJECTS):
        for seed in scope.seeds(10):
            for way in scope.in_ways(WAYS):
                yield from (Cell("rq4", subject, way, str(alpha), seed) for alpha in _alphas(way, subject, scope))


def _alphas(way: str, subject: str, scope: Scope) -> tuple[int, ...]:
    if way == DEFAULT:
        return (USUAL,)
    if scope.quick:
        return QUICK
    return ALPHAS if subject == "fm-mlp" else FEWER


def make(cell: Cell) -> dict[str, Any]:
    """Repair the most frequent confusion with one alpha."""
    target = rank_confusions(cell.subject)[0]
    _, found = run_repair(
        cell.way, *open_subject(cell.subject, cell.seed), target, seed=cell.seed, alpha=float(cell.case)
    )
    return found


RQ4 = Question("rq4", cells, make)
