"""RQ7: angry tweets that an LSTM reads as neutral, with the paper's alpha of 1, and how sure their labellers were."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import arachne
from examples.study.questions.kept import Cell
from examples.study.questions.repairing import DEFAULT, FAITHFUL, open_subject, run_repair
from examples.study.questions.working import Question, Scope

SUBJECTS = ("tweets-lstm",)
WAYS = (FAITHFUL, DEFAULT)
ALPHA = 1.0
FAULT = "0:1"
"""Negative read as neutral."""
SURE = "confidence"


def cells(scope: Scope) -> Iterator[Cell]:
    """The most frequent confusion, with several seeds."""
    for subject in scope.of(SUBJECTS):
        for seed in scope.seeds(10):
            yield from (Cell("rq7", subject, way, FAULT, seed) for way in scope.in_ways(WAYS))


def make(cell: Cell) -> dict[str, Any]:
    """Repair, and ask how sure the labellers were of what was repaired."""
    result, found = run_repair(cell.way, *open_subject(cell.subject, cell.seed), cell.case, seed=cell.seed, alpha=ALPHA)
    return {**found, "sure": sureness(result, found)}


def sureness(result: arachne.RepairResult, found: dict[str, Any]) -> dict[str, list[float]]:
    """Of repaired and of unrepaired negatives of both halves: `[how many, mean confidence]`."""
    sure: dict[bool, list[float]] = {True: [], False: []}
    for part, told in ((result.split.seen, result.evidence.seen), (result.split.held_out, result.evidence.held_out)):
        fixed = set(told.fixed.positions.tolist()) if found["patch"] is not None else set()
        for position in part.negatives.tolist():
            sure[position in fixed].append(float(part.data.columns[SURE][position]))
    return {
        name: [len(values), round(float(np.mean(values)), 4) if values else 0.0]
        for name, values in (("repaired", sure[True]), ("unrepaired", sure[False]))
    }


RQ7 = Question("rq7", cells, make)
