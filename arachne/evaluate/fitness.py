"""What the fitness counts, and what a candidate falls short of it: int64 deficits, term by term.

An input of weight w has the score 1 when it is classified correctly and 1 / (loss + 1) otherwise (the paper's fitness).
Its *deficit* is w * (1 - score) >= 0, stored as a whole number of 2**-32. Sums of whole numbers are the same in any
order, in chunks, in threads and on other machines; and because no deficit is negative, a trial whose partial sum
exceeds its limit can be dropped with certainty.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, get_args

import numpy as np

from arachne.data.split import Part, Term, TermKind
from arachne.errors import UsageError
from arachne.lazy import concatenated
from arachne.losses import cross_entropies
from arachne.values import EVEN, Array, Inputs, take

UNIT = float(1 << 32)
"""The deficit of one input of weight 1 whose score is 0, as a whole number."""

FEWEST_PADDED = 4 * EVEN
"""With fewer inputs than this all are always evaluated together (`judging.reference_scores`), and none are padded."""


class Outcome(NamedTuple):
    """What one candidate does to the inputs that count.

    Attributes:
        repaired: Negatives it classifies correctly.
        broken: Positives it gets wrong.
        broken_never_break: Inputs of never-break terms it gets wrong.
    """

    repaired: int
    broken: int
    broken_never_break: int


@dataclass(frozen=True, eq=False)
class FitnessInputs:
    """The inputs a fitness counts, in one array.

    Attributes:
        padded: The `n` inputs that count, followed by copies of the first ones up to a multiple of `EVEN`. Every input
            then passes through the same machine code as in any other multiple of `EVEN`, and can be evaluated without
            the others (`judging.reference_scores`).
        labels: Their true classes, `(n,)`.
        weights: Their weights, float64 `(n,)`.
        terms: The number of the term each belongs to, `(n,)`.
        names: The terms' names.
        kinds: The terms' kinds: `positive`, `negative` or `never_break`.
    """

    padded: Inputs
    labels: Array
    weights: Array
    terms: Array
    names: tuple[str, ...]
    kinds: tuple[TermKind, ...]

    @classmethod
    def around(
        cls,
        inputs: Inputs,
        labels: Array,
        weights: Array,
        terms: Array,
        names: tuple[str, ...],
        kinds: tuple[TermKind, ...],
    ) -> FitnessInputs:
        """From inputs that are not padded yet."""
        return cls(take(inputs, _padded(np.arange(len(labels)))), labels, weights, terms, names, kinds)

    @classmethod
    def of(cls, part: Part, terms: Sequence[Term]) -> FitnessInputs:
        """The inputs of some terms of a part, term after term."""
        for term in terms:
            if not (np.isfinite(term.weight) and term.weight >= 0):
                raise UsageError(f"the weight of '{term.name}' must be a number from 0 up, got {term.weight:g}")
        rows = np.concatenate([term.rows for term in terms]).astype(np.int64)
        sizes = [len(term.rows) for term in terms]
        return cls(
            padded=take(part.data.inputs, _padded(rows)),
            labels=part.data.labels[rows],
            weights=np.repeat([term.weight for term in terms], sizes).astype(np.float64),
            terms=np.repeat(np.arange(len(terms)), sizes),
            names=tuple(term.name for term in terms),
            kinds=tuple(term.kind for term in terms),
        )

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def inputs(self) -> Inputs:
        """The inputs without the padding."""
        return take(self.padded, slice(0, len(self)))

    @property
    def n_terms(self) -> int:
        """Number of terms."""
        return len(self.names)

    def take(self, rows: Array) -> FitnessInputs:
        """Some of the inputs; the terms stay, even those that have no input left."""
        return FitnessInputs.around(
            take(self.padded, rows), self.labels[rows], self.weights[rows], self.terms[rows], self.names, self.kinds
        )

    def of_kind(self, kind: TermKind) -> Array:
        """Which inputs belong to a term of this kind, bool `(n,)`."""
        return self._by_kind[kind]

    @cached_property
    def _by_kind(self) -> dict[TermKind, Array]:
        kinds = np.array(self.kinds)
        return {kind: np.isin(self.terms, np.flatnonzero(kinds == kind)) for kind in get_args(TermKind)}

    def joined(self, part: Part, term: Term) -> FitnessInputs:
        """The same with one more term, of another part."""
        more = take(part.data.inputs, term.rows)
        return FitnessInputs.around(
            _concatenated(self.inputs, more),
            np.concatenate([self.labels, part.data.labels[term.rows]]),
            np.concatenate([self.weights, np.full(len(term.rows), term.weight)]),
            np.concatenate([self.terms, np.full(len(term.rows), self.n_terms)]),
            (*self.names, term.name),
            (*self.kinds, term.kind),
        )

    def total_weight(self) -> float:
        """The largest possible fitness: the sum of all weights."""
        return float(self.weights.sum())

    def wrong_by_term(self, scores: Array, rows: Array | slice = slice(None)) -> Array:
        """How many inputs of each term are misclassified `(terms,)`, from class scores `(rows, classes)`."""
        wrong = np.argmax(scores, axis=1) != self.labels[rows]
        return np.bincount(self.terms[rows][wrong], minlength=self.n_terms)

    def deficits_by_term(self, scores: Array, rows: Array | slice = slice(None)) -> Array:
        """Sum of the inputs' deficits in each term, int64 `(terms,)`, from class scores `(rows, classes)`."""
        sums = np.zeros(self.n_terms, np.int64)
        np.add.at(sums, self.terms[rows], input_deficits(scores, self.labels[rows], self.weights[rows]))
        return sums

    def outcome(self, wrong: Array) -> Outcome:
        """What a candidate does that gets this many inputs of each term wrong, `(terms,)`."""
        right = np.bincount(self.terms, minlength=self.n_terms) - wrong

        def of_kind(numbers: Array, kind: TermKind) -> int:
            return int(numbers[np.array([own == kind for own in self.kinds], bool)].sum())

        return Outcome(of_kind(right, "negative"), of_kind(wrong, "positive"), of_kind(wrong, "never_break"))


def _concatenated(first: Inputs, second: Inputs) -> Inputs:
    """The rows of both, in the dtypes of the first."""
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        return {name: concatenated(array, second[name]) for name, array in first.items()}
    if isinstance(first, Mapping) or isinstance(second, Mapping):
        raise UsageError("never-break inputs must be of the same kind as the data")
    return concatenated(first, second)


def _padded(rows: Array) -> Array:
    """The rows, followed by the first of them again up to a multiple of `EVEN`; fewer than `FEWEST_PADDED` as given."""
    return rows if len(rows) < FEWEST_PADDED else np.resize(rows, -(-len(rows) // EVEN) * EVEN)


def input_deficits(scores: Array, labels: Array, weights: Array) -> Array:
    """The deficit of each input, int64 `(n,)`, from class scores `(n, classes)`.

    An input whose scores are not all finite gets the largest deficit, its whole weight.
    """
    deficits = np.zeros(len(labels), np.int64)
    finite = np.isfinite(scores).all(axis=1)
    wrong = np.flatnonzero(finite & (np.argmax(scores, axis=1) != labels))
    loss = cross_entropies(scores[wrong], labels[wrong])
    deficits[wrong] = np.rint(weights[wrong] * (loss / (1.0 + loss)) * UNIT).astype(np.int64)
    deficits[~finite] = np.rint(weights[~finite] * UNIT).astype(np.int64)
    return deficits
