"""RQ6: women's faces that are read as men's, with the paper's alpha of 2: what becomes of both genders?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from examples.study.questions.kept import Cell
from examples.study.questions.repairing import DEFAULT, FAITHFUL, open_subject, run_repair
from examples.study.questions.working import Question, Scope

SUBJECTS = ("lfw-vgg",)
WAYS = (FAITHFUL, DEFAULT)
ALPHA = 2.0
FAULT = "1:0"
"""Women read as men."""


def cells(scope: Scope) -> Iterator[Cell]:
    """Many seeds, for the distribution."""
    for subject in scope.of(SUBJECTS):
        for seed in scope.seeds(10, 2):
            yield from (Cell("rq6", subject, way, FAULT, seed) for way in scope.in_ways(WAYS))


def make(cell: Cell) -> dict[str, Any]:
    """Repair one class's errors."""
    _, found = run_repair(cell.way, *open_subject(cell.subject, cell.seed), cell.case, seed=cell.seed, alpha=ALPHA)
    return found


RQ6 = Question("rq6", cells, make)
