"""What a candidate patch costs: int64 deficits, term by term.

An input is worth its term's weight. Its score is 1 when it is classified correctly and 1 / (loss + 1) otherwise (the
paper's fitness); what it falls short of, weight * (1 - score) >= 0, is its *deficit*. Deficits are whole numbers of
2**-32, so that a sum is the same in any order, in chunks, in threads and on other machines, and a trial whose partial
sum already exceeds its limit can be dropped with certainty.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from arachne.backend import ModelBackend, Weights
from arachne.data.split import Part, Term
from arachne.errors import UsageError
from arachne.losses import cross_entropies
from arachne.suspects import Suspects
from arachne.values import EVEN, Array, Inputs, take

UNIT = float(1 << 32)
"""How many units of a deficit make one input of weight 1."""


@dataclass(frozen=True, eq=False)
class Stake:
    """The inputs a fitness is about, in one array.

    Attributes:
        padded: All inputs that count, `n` of them, and some again, up to an even number: every input then goes through
            the same code of a full pass, and can be asked about without the others (`truth`).
        labels: Their true classes, `(n,)`.
        weights: What each is worth, float64 `(n,)`.
        terms: Which term each belongs to, `(n,)`.
        names: The terms' names.
    """

    padded: Inputs
    labels: Array
    weights: Array
    terms: Array
    names: tuple[str, ...]

    @classmethod
    def around(cls, inputs: Inputs, labels: Array, weights: Array, terms: Array, names: tuple[str, ...]) -> Stake:
        """A stake over inputs that are not padded."""
        return cls(take(inputs, _padded(np.arange(len(labels)))), labels, weights, terms, names)

    @classmethod
    def of(cls, part: Part, terms: Sequence[Term]) -> Stake:
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
        )

    @property
    def inputs(self) -> Inputs:
        """All inputs that count."""
        return take(self.padded, slice(0, len(self.labels)))

    @property
    def n_terms(self) -> int:
        """Number of terms."""
        return len(self.names)

    def total_weight(self) -> float:
        """What all inputs are worth together: the largest possible fitness."""
        return float(self.weights.sum())


def _padded(rows: Array) -> Array:
    """Rows, and the first of them again up to an even number; so few that they are never asked about alone, as is."""
    return rows if len(rows) < 4 * EVEN else np.resize(rows, -(-len(rows) // EVEN) * EVEN)


def input_deficits(scores: Array, labels: Array, weights: Array) -> Array:
    """What each input falls short of, int64 `(n,)`, from class scores `(n, classes)`.

    A candidate whose scores are not finite is wrong about that input and as wrong as can be.
    """
    deficits = np.zeros(len(labels), np.int64)
    finite = np.isfinite(scores).all(axis=1)
    wrong = np.flatnonzero(finite & (np.argmax(scores, axis=1) != labels))
    loss = cross_entropies(scores[wrong], labels[wrong])
    deficits[wrong] = np.rint(weights[wrong] * (loss / (1.0 + loss)) * UNIT).astype(np.int64)
    deficits[~finite] = np.rint(weights[~finite] * UNIT).astype(np.int64)
    return deficits


def by_term(deficits: Array, terms: Array, n_terms: int) -> Array:
    """Sum of the inputs' deficits in each term, int64 `(n_terms,)`."""
    sums = np.zeros(n_terms, np.int64)
    np.add.at(sums, terms, deficits)
    return sums


class Evaluator(ABC):
    """Tells what candidate patches cost. `evaluate` is all a search knows of it."""

    def __init__(self, backend: ModelBackend, stake: Stake, suspects: Suspects) -> None:
        self.backend = backend
        self.stake = stake
        self.suspects = suspects
        self._original = {
            (layer, parameter): backend.get_weights(layer)[parameter] for layer, parameter in suspects.parameters
        }

    @abstractmethod
    def evaluate(self, trials: Array, limits: Array | None = None) -> Array:
        """Deficits of candidate patches, int64 `(trials, terms)`.

        Args:
            trials: New values for the suspects, `(trials, k)`, already rounded to what the model stores.
            limits: int64 `(trials,)`: a trial whose deficits add up to more than its limit will be rejected, so their
                exact sum does not matter then. None asks for all of them in full.
        """

    def challenge(self, trials: Array, parents: Array, limits: Array | None) -> Array:
        """As `evaluate`, for a search that lets each trial challenge its parent and keeps the winner.

        Such a search needs decisions, not sums: whether a trial's total is at most its parent's, and which member is
        the best. Both come out as from the plain evaluator, and so does the lowest total. Other deficits may be
        estimates, fit for nothing but the limits of the next call.

        Args:
            trials: As in `evaluate`.
            parents: The candidates they challenge, `(trials, k)`.
            limits: The totals this method gave for them, int64 `(trials,)`; None for a first population, which
                challenges nobody.
        """
        return self.evaluate(trials, limits)

    @abstractmethod
    def scores(self, trial: Array) -> Array:
        """Class scores `(n, classes)` of every input of the stake under one candidate."""

    def outcome(self, trial: Array) -> tuple[int, int]:
        """How many negatives one candidate repairs, and how many positives it breaks."""
        right = np.argmax(self.scores(trial), axis=1) == self.stake.labels
        negative = self.stake.terms > 0
        return int(right[negative].sum()), int((~right[~negative]).sum())

    def weights_with(self, trial: Array) -> Weights:
        """The whole parameters a candidate changes, with its values in them."""
        weights = {name: values.copy() for name, values in self._original.items()}
        for place in self.suspects.places:
            weights[place.layer, place.parameter][place.index] = trial[place.numbers]
        return weights
