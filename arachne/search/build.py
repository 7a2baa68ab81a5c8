"""Build the problem of a search from the parts of the data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from arachne.data.grouping import balanced_terms
from arachne.data.labelled import LabelledData
from arachne.data.part import Term
from arachne.data.split import Split
from arachne.localise.base import EVERY_LAYER, LayerFilter
from arachne.model.backend import ModelBackend
from arachne.model.values import Array
from arachne.scoring.evaluators import FitnessInputs
from arachne.scoring.tail_cache import TailCache, tail_of
from arachne.search.base import MakeEvaluator, Problem
from arachne.weights.selection import Selection

NEVER_BREAK_WEIGHT = 10.0
"""The weight of a never-break input in the fitness, where a positive has 1 and a negative 10 by default.

A candidate that breaks one is refused when the point is selected, whatever the weight; the weight leads the search to
candidates that break none.
"""


def build_problem(
    backend: ModelBackend,
    split: Split,
    suspects: Selection,
    alpha: float,
    evaluate: MakeEvaluator,
    training: LabelledData | None = None,
    allowed: LayerFilter = EVERY_LAYER,
) -> tuple[Problem, Array]:
    """Build the problem; return it and the rows of the seen part that its fitness inputs begin with.

    Args:
        backend: The model.
        split: The parts of the data.
        suspects: The weights a search may change.
        alpha: The weight of a negative; a positive has 1.
        evaluate: Makes the evaluator.
        training: Training inputs, where the user gave them.
        allowed: The layers that the user lets a repair change.
    """
    terms = balanced_terms(split, split.seen.terms(alpha))
    rows = np.concatenate([term.rows for term in terms])
    counted, shared = fitness_inputs(split, terms), cached_tail(backend, split, rows)
    return Problem(backend, split, suspects, counted, evaluate, training, rows, allowed, shared), rows


def fitness_inputs(split: Split, terms: Sequence[Term]) -> FitnessInputs:
    """Collect the inputs that the fitness counts: the seen part's terms, then the never-break inputs that are right."""
    counted = FitnessInputs.of(split.seen, terms)
    watched = split.never_break
    if watched is None:
        return counted
    return counted.with_term(watched, Term("never break", watched.positives, NEVER_BREAK_WEIGHT, "never_break"))


def cached_tail(backend: ModelBackend, split: Split, rows: Array) -> dict[str, Any]:
    """Return the fitness inputs' tail activations as `{"tail": cache}`; empty if the split did not cache them."""
    watched, tails = split.never_break, []
    parts = [(split.seen, rows)] if watched is None else [(split.seen, rows), (watched, watched.positives)]
    for part, own in parts:
        if not isinstance(part.cached_activations, TailCache) or (tail := tail_of(backend, part, own)) is None:
            return {}
        tails.append(tail)
    if len(tails) == 1:
        return {"tail": tails[0]}
    return {"tail": tails[0].concatenate(tails[1])} if tails[0].layers == tails[1].layers else {}
