"""Build the problem of a search from the parts of the data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from arachne.data.grouping import balanced_terms
from arachne.data.labelled import LabelledData
from arachne.data.part import Part, Term
from arachne.data.split import Split
from arachne.localise.base import EVERY_LAYER, LayerFilter
from arachne.model.backend import ModelBackend
from arachne.model.values import Array
from arachne.scoring.evaluators import FitnessInputs
from arachne.scoring.tail_cache import TailCache, tail_of
from arachne.search.problem import MakeEvaluator, Problem
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
    *,
    others: bool = False,
) -> Problem:
    """Build the problem of a search.

    Args:
        backend: The model.
        split: The parts of the data.
        suspects: The weights a search may change.
        alpha: The weight of a negative; a positive has 1.
        evaluate: Makes the evaluator.
        training: Training inputs, where the user gave them.
        allowed: The layers that the user lets a repair change.
        others: Whether errors off the target count too, as where accuracy is limited and not what breaks.
    """
    terms = balanced_terms(split, split.seen.terms(alpha, others=others and split.seen.task.SINGLE))
    rows = np.concatenate([term.rows for term in terms])
    added = list(added_terms(split, alpha))
    counted, shared = fitness_inputs(split, terms, added), cached_tail(backend, split, rows, added)
    return Problem(backend, split, suspects, counted, evaluate, training, rows, allowed, shared)


def added_terms(split: Split, alpha: float) -> Iterator[tuple[Part, Term]]:
    """Give the terms that are not of the seen part: copies with a cause planted, then never-break inputs."""
    weights = {target.text: target.weight for target in split.targets}
    for text, copies in split.copies.items():
        yield copies, Term(f"{text}, planted", np.arange(len(copies)), alpha * weights[text], "negative")
    watched = split.never_break
    if watched is not None:
        yield watched, Term("never break", watched.positives, NEVER_BREAK_WEIGHT, "never_break")


def fitness_inputs(split: Split, terms: Sequence[Term], added: Sequence[tuple[Part, Term]]) -> FitnessInputs:
    """Collect the inputs that the fitness counts: the seen part's terms, then the other parts'."""
    counted = FitnessInputs.of(split.seen, terms)
    for part, term in added:
        counted = counted.with_term(part, term)
    return counted


def cached_tail(backend: ModelBackend, split: Split, rows: Array, added: Sequence[tuple[Part, Term]]) -> dict[str, Any]:
    """Return the fitness inputs' tail activations as `{"tail": cache}`; empty if the split did not cache them."""
    found: TailCache | None = None
    for part, own in [(split.seen, rows), *((part, term.rows) for part, term in added)]:
        if not isinstance(part.cached_activations, TailCache) or (tail := tail_of(backend, part, own)) is None:
            return {}
        if found is not None and found.layers != tail.layers:
            return {}
        found = tail if found is None else found.concatenate(tail)
    return {"tail": found}
