"""RQ3: do repairs of the thirty most frequent confusions hold on other inputs? Also through every backend."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from examples.study.questions.kept import Cell
from examples.study.questions.ported import port_network
from examples.study.questions.repairing import DEFAULT, FAITHFUL, open_subject, rank_confusions, run_repair
from examples.study.questions.working import Question, Scope

SUBJECTS = ("fm-mlp", "c10-cnn", "gtsrb-cnn")
WAYS = (FAITHFUL, DEFAULT)
TORCH = "torch"
PORTED = ("fm-mlp",)
"""Which subjects are also opened by other backends."""


def cells(scope: Scope) -> Iterator[Cell]:
    """Every fault, most frequent first; through another backend the way has its name: `faithful@onnx`."""
    ranks = range(1, 1 + (scope.faults or (3 if scope.quick else 30)))
    for backend in scope.backends:
        behind = "" if backend == TORCH else f"@{backend}"
        for subject in scope.of(SUBJECTS if backend == TORCH else PORTED):
            for seed in scope.seeds(10):
                for rank in ranks:
                    yield from (Cell("rq3", subject, way + behind, str(rank), seed) for way in scope.in_ways(WAYS))


def make(cell: Cell) -> dict[str, Any]:
    """Repair one of the most frequent confusions."""
    way, _, name = cell.way.partition("@")
    backend, *both = open_subject(cell.subject, cell.seed)
    target = rank_confusions(cell.subject)[int(cell.case) - 1]
    if name:
        backend, both = port_network(backend, name, both)
    _, found = run_repair(way, backend, *both, target, seed=cell.seed)
    return found


RQ3 = Question("rq3", cells, make)
