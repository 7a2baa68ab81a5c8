"""From the parts of the data to the problem a search is given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from arachne.backend import ModelBackend
from arachne.data.grouping import balanced_terms
from arachne.data.labelled import LabelledData
from arachne.data.split import Split, Term
from arachne.evaluate import FitnessInputs
from arachne.search.base import MakeEvaluator, Problem
from arachne.search.tail_inputs import TailInputs, tail_of
from arachne.suspects import Suspects
from arachne.values import Array

NEVER_BREAK_WEIGHT = 10.0
"""What a never-break input counts against a positive in a fitness: as much as a negative does by default.

The choice between candidates refuses those that break one, whatever they weigh; the weight is there so that a search
comes upon others.
"""


def posed(
    backend: ModelBackend,
    split: Split,
    suspects: Suspects,
    alpha: float,
    evaluate: MakeEvaluator,
    training: LabelledData | None = None,
) -> tuple[Problem, Array]:
    """The problem, and the rows of the seen part that its fitness inputs begin with.

    Args:
        backend: The model.
        split: The parts of the data.
        suspects: The weights a search may change.
        alpha: How much a negative counts against a positive.
        evaluate: Makes the evaluator.
        training: Training inputs, where the user gave them.
    """
    terms = balanced_terms(split, split.seen.terms(alpha))
    rows = np.concatenate([term.rows for term in terms])
    counted, shared = fitness_inputs(split, terms), kept_tail(backend, split, rows)
    return Problem(backend, split, suspects, counted, evaluate, training, rows, shared), rows


def fitness_inputs(split: Split, terms: Sequence[Term]) -> FitnessInputs:
    """The inputs a search's fitness counts: the terms of the seen part, then the never-break inputs that are right."""
    counted = FitnessInputs.of(split.seen, terms)
    kept = split.never_break
    if kept is None:
        return counted
    return counted.joined(kept, Term("never break", kept.positives, NEVER_BREAK_WEIGHT, "never_break"))


def kept_tail(backend: ModelBackend, split: Split, rows: Array) -> dict[str, Any]:
    """What flows through the model's tail for the fitness inputs, where the passes of the split have kept it."""
    watched, tails = split.never_break, []
    parts = [(split.seen, rows)] if watched is None else [(split.seen, rows), (watched, watched.positives)]
    for part, own in parts:
        if not isinstance(part.kept, TailInputs) or (tail := tail_of(backend, part, own)) is None:
            return {}
        tails.append(tail)
    if len(tails) == 1:
        return {"tail": tails[0]}
    return {"tail": tails[0].joined(tails[1])} if tails[0].layers == tails[1].layers else {}
