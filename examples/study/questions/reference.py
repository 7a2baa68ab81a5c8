"""The network and the halves that the paper's authors' own code was run on: Fashion-MNIST, 784-100-10."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import torch

import arachne
from examples.study import sources
from examples.study.data import scale_inputs, subject_data
from examples.study.networks import fm_mlp
from examples.study.questions.kept import Cell
from examples.study.questions.repairing import DEFAULT, FAITHFUL, run_repair
from examples.study.questions.working import Question, Scope

SUBJECT = "fm-reference"
WAYS = (FAITHFUL, DEFAULT)
FAULTS = 3


def cells(scope: Scope) -> Iterator[Cell]:
    """The three most frequent confusions of the seen half."""
    for subject in scope.of((SUBJECT,)):
        for seed in scope.seeds(5):
            for rank in range(1, 1 + (scope.faults or FAULTS)):
                yield from (Cell("reference", subject, way, str(rank), seed) for way in scope.in_ways(WAYS))


def make(cell: Cell) -> dict[str, Any]:
    """Repair one of them; the halves are given, the seed is the repair's alone."""
    backend, seen, held_out, faults = _open_reference()
    _, found = run_repair(cell.way, backend, seen, held_out, faults[int(cell.case) - 1], seed=cell.seed)
    return found


@lru_cache(maxsize=1)
def _open_reference() -> tuple[arachne.ModelBackend, arachne.LabelledData, arachne.LabelledData, tuple[str, ...]]:
    with np.load(sources.FM_REFERENCE.path()) as stored:
        kept = {name: stored[name] for name in stored.files}
    network = fm_mlp()
    with torch.no_grad():
        for name, number in (("hidden", 1), ("scores", 2)):
            layer = network.get_submodule(name)
            layer.get_parameter("weight").copy_(torch.from_numpy(kept[f"W{number}"].T))
            layer.get_parameter("bias").copy_(torch.from_numpy(kept[f"b{number}"]))
    backend, data = arachne.load(network), subject_data("fm")
    seen, held_out = (
        arachne.LabelledData(scale_inputs(data.test[kept[half]]), data.test_labels[kept[half]])
        for half in ("val", "eval")
    )
    faults = arachne.scan(backend, seen).faults[:FAULTS]
    return backend, seen, held_out, tuple(fault.target for fault in faults)


REFERENCE = Question("reference", cells, make)
