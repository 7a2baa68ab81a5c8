"""RQ2: a random tenth of all errors is to be repaired, on the whole test set, after each way of localising."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from arachne.data.targets import Target
from examples.study.cases import open_network
from examples.study.questions.kept import Cell
from examples.study.questions.repairing import DEFAULT, FAITHFUL, GL, RS, run_repair, training_of
from examples.study.questions.working import Question, Scope

SUBJECTS = ("fm-mlp", "c10-cnn", "gtsrb-cnn")
WAYS = (FAITHFUL, GL, RS, DEFAULT)
SHARE = 0.1
OTHERS = 1000
"""How many training inputs stand in for held-out ones: all of the test set is seen here."""


def cells(scope: Scope) -> Iterator[Cell]:
    """Every way for every seed; the seed draws the tenth, too."""
    for subject in scope.of(SUBJECTS):
        for seed in scope.seeds(10):
            yield from (Cell("rq2", subject, way, "tenth", seed) for way in scope.in_ways(WAYS))


def make(cell: Cell) -> dict[str, Any]:
    """Draw a tenth of the errors and repair them."""
    backend, data = open_network(cell.subject)
    wrong = np.flatnonzero(backend.forward(data.inputs).argmax(axis=1) != data.labels)
    rng = np.random.default_rng(cell.seed)
    rows = np.sort(rng.choice(wrong, max(1, round(SHARE * len(wrong))), replace=False))
    target = Target("tenth", rows=tuple(rows.tolist()))
    others = training_of(cell.subject).take(np.arange(OTHERS))
    _, found = run_repair(cell.way, backend, data, others, target, seed=cell.seed)
    return {**found, "wrong": len(wrong)}


RQ2 = Question("rq2", cells, make)
