"""FitnessInputs: the inputs that the fitness counts, and the deficits of a candidate, int64, term by term.

An input of weight w has the score 1 when it is classified correctly and 1 / (loss + 1) otherwise (the paper's fitness).
Its *deficit* is w * (1 - score) >= 0, stored as a whole number of 2**-32. Sums of whole numbers are the same in any
order, in chunks, in threads and on other machines. Because no deficit is negative, a trial whose partial sum exceeds
its limit can be dropped for certain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, get_args

import numpy as np

from arachne.data.part import ActivationCache, Part, Term, TermKind
from arachne.errors import UsageError
from arachne.model.lazy import concatenate
from arachne.model.values import EVEN, Array, Inputs, take
from arachne.tasks import SINGLE_LABEL, DecisionRows, Task
from arachne.text import Brief

UNIT = float(1 << 32)
"""The deficit of one input of weight 1 whose score is 0, as a whole number."""

FEWEST_PADDED = 4 * EVEN
"""With fewer inputs than this, all are always evaluated together (`fast.reference_scores`), without padding."""


class OutcomeCounts(NamedTuple):
    """How many decisions one candidate repairs and breaks, among those that count.

    Attributes:
        repaired: Negatives it classifies correctly.
        broken: Positives it gets wrong.
        broken_never_break: Inputs of never-break terms it gets wrong.
    """

    repaired: int
    broken: int
    broken_never_break: int


@dataclass(frozen=True, eq=False)
class FitnessInputs(Brief):
    """The inputs a fitness counts, in one array.

    Attributes:
        padded: The `n` inputs that count, followed by copies of the first ones up to a multiple of `EVEN`. Every input
            then passes through the same machine code as in any other multiple of `EVEN`, and can be evaluated without
            the others (`fast.reference_scores`).
        labels: Their true classes, `(n,)`.
        weights: Their weights, float64 `(n,)`.
        terms: The number of the term each belongs to, `(n,)`.
        names: The terms' names.
        kinds: The terms' kinds: `positive`, `negative` or `never_break`.
        decisions: The decisions that count, where an input may have several; labels, weights and terms are then those
            of decisions. None where every input is one decision.
        activations: What a pass of the original model has left of the inputs, one row for each; None if nothing.
    """

    padded: Inputs
    labels: Array
    weights: Array
    terms: Array
    names: tuple[str, ...]
    kinds: tuple[TermKind, ...]
    decisions: DecisionRows | None = None
    activations: ActivationCache | None = None

    @classmethod
    def around(
        cls,
        inputs: Inputs,
        labels: Array,
        weights: Array,
        terms: Array,
        names: tuple[str, ...],
        kinds: tuple[TermKind, ...],
        decisions: DecisionRows | None = None,
    ) -> FitnessInputs:
        """Make fitness inputs of inputs that are not padded yet."""
        n = len(labels) if decisions is None else len(decisions.labels)
        return cls(take(inputs, _pad(np.arange(n))), labels, weights, terms, names, kinds, decisions)

    @classmethod
    def of(cls, part: Part, terms: Sequence[Term]) -> FitnessInputs:
        """Collect the decisions of some terms of a part, term after term, and their inputs."""
        for term in terms:
            if not (np.isfinite(term.weight) and term.weight >= 0):
                raise UsageError(f"the weight of '{term.name}' must be a number from 0 up, got {term.weight:g}")
        rows = np.concatenate([term.rows for term in terms]).astype(np.int64)
        sizes = [len(term.rows) for term in terms]
        inputs, decisions = _inputs_of(part, rows)
        cache = part.cached_activations
        return cls(
            padded=take(part.data.inputs, _pad(inputs)),
            labels=part.labels[rows],
            weights=np.repeat([term.weight for term in terms], sizes).astype(np.float64),
            terms=np.repeat(np.arange(len(terms)), sizes),
            names=tuple(term.name for term in terms),
            kinds=tuple(term.kind for term in terms),
            decisions=decisions,
            activations=None if cache is None else cache.take(inputs),
        )

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def inputs(self) -> Inputs:
        """The inputs without the padding."""
        return take(self.padded, slice(0, self.n_inputs))

    @property
    def n_inputs(self) -> int:
        """Number of inputs; with one decision for each, as many as decisions."""
        return len(self) if self.decisions is None else len(self.decisions.labels)

    def read(self, outputs: Array, rows: Array | None = None) -> Array:
        """Return class scores `(rows, classes)` of the decisions, all when None, from raw outputs of all inputs."""
        if self.decisions is None:
            return outputs[: len(self)] if rows is None else outputs[rows]
        asked = np.arange(len(self)) if rows is None else rows
        return self.decisions.read(outputs[: self.n_inputs], np.arange(self.n_inputs), asked)

    @property
    def n_terms(self) -> int:
        """Number of terms."""
        return len(self.names)

    def take(self, rows: Array) -> FitnessInputs:
        """Select some of the decisions; all terms stay, even if they have no decision left."""
        if self.decisions is not None:
            decisions, own = self.decisions.take(rows), (self.labels[rows], self.weights[rows], self.terms[rows])
            return FitnessInputs(self.padded, *own, self.names, self.kinds, decisions)
        found = FitnessInputs.around(
            take(self.padded, rows), self.labels[rows], self.weights[rows], self.terms[rows], self.names, self.kinds
        )
        return found if self.activations is None else replace(found, activations=self.activations.take(rows))

    def of_kind(self, kind: TermKind) -> Array:
        """Tell which inputs belong to a term of this kind, bool `(n,)`."""
        return self._by_kind[kind]

    @cached_property
    def _by_kind(self) -> dict[TermKind, Array]:
        kinds = np.array(self.kinds)
        return {kind: np.isin(self.terms, np.flatnonzero(kinds == kind)) for kind in get_args(TermKind)}

    def with_term(self, part: Part, term: Term) -> FitnessInputs:
        """Return fitness inputs with one more term, from another part."""
        inputs, others = _inputs_of(part, term.rows)
        more = take(part.data.inputs, inputs)
        return FitnessInputs.around(
            _concatenate(self.inputs, more),
            np.concatenate([self.labels, part.labels[term.rows]]),
            np.concatenate([self.weights, np.full(len(term.rows), term.weight)]),
            np.concatenate([self.terms, np.full(len(term.rows), self.n_terms)]),
            (*self.names, term.name),
            (*self.kinds, term.kind),
            None if self.decisions is None or others is None else self.decisions.extended_by(others),
        )

    def total_weight(self) -> float:
        """Return the largest possible fitness: the sum of all weights."""
        return float(self.weights.sum())

    @property
    def task(self) -> Task:
        """How outputs are read, and when a decision is right."""
        return SINGLE_LABEL if self.decisions is None else self.decisions.task

    def correct(self, scores: Array, rows: Array | slice = slice(None)) -> Array:
        """Tell which decisions are right, bool `(rows,)`, from class scores `(rows, classes)`."""
        return self.task.correct(scores, self.labels[rows])

    def wrong_by_term(self, scores: Array, rows: Array | slice = slice(None)) -> Array:
        """Count the misclassified inputs of each term `(terms,)`, from class scores `(rows, classes)`."""
        wrong = ~self.correct(scores, rows)
        return np.bincount(self.terms[rows][wrong], minlength=self.n_terms)

    def deficits_by_term(self, scores: Array, rows: Array | slice = slice(None)) -> Array:
        """Sum the inputs' deficits in each term, int64 `(terms,)`, from class scores `(rows, classes)`."""
        sums = np.zeros(self.n_terms, np.int64)
        found = input_deficits(scores, self.labels[rows], self.weights[rows], self.task)
        np.add.at(sums, self.terms[rows], found)
        return sums

    def outcome(self, wrong: Array) -> OutcomeCounts:
        """Return the outcome of a candidate that gets this many inputs of each term wrong, `(terms,)`."""
        right = np.bincount(self.terms, minlength=self.n_terms) - wrong

        def of_kind(numbers: Array, kind: TermKind) -> int:
            return int(numbers[np.array([own == kind for own in self.kinds], bool)].sum())

        return OutcomeCounts(of_kind(right, "negative"), of_kind(wrong, "positive"), of_kind(wrong, "never_break"))


def _inputs_of(part: Part, rows: Array) -> tuple[Array, DecisionRows | None]:
    """Return the inputs of some decisions of a part, and these decisions if an input may have several."""
    return (rows, None) if part.task.SINGLE else part.choose_decisions(rows).compact()


def _concatenate(first: Inputs, second: Inputs) -> Inputs:
    """Concatenate the rows of both, in the dtypes of the first."""
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        return {name: concatenate(array, second[name]) for name, array in first.items()}
    if isinstance(first, Mapping) or isinstance(second, Mapping):
        raise UsageError("never-break inputs must be of the same kind as the data")
    return concatenate(first, second)


def _pad(rows: Array) -> Array:
    """Repeat the first rows up to a multiple of `EVEN`; fewer than `FEWEST_PADDED` rows stay as they are."""
    return rows if len(rows) < FEWEST_PADDED else np.resize(rows, -(-len(rows) // EVEN) * EVEN)


def input_deficits(scores: Array, labels: Array, weights: Array, task: Task = SINGLE_LABEL) -> Array:
    """Return the deficit of each input, int64 `(n,)`, from class scores `(n, classes)`.

    An input whose scores are not all finite gets the largest deficit, its whole weight.
    """
    deficits = np.zeros(len(labels), np.int64)
    finite = np.isfinite(scores).all(axis=1)
    wrong = np.flatnonzero(finite & ~task.correct(scores, labels))
    loss = task.losses(scores[wrong], labels[wrong])
    deficits[wrong] = np.rint(weights[wrong] * (loss / (1.0 + loss)) * UNIT).astype(np.int64)
    deficits[~finite] = np.rint(weights[~finite] * UNIT).astype(np.int64)
    return deficits
