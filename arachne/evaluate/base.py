"""What an evaluator is: the one who says what candidate patches cost."""

from __future__ import annotations

from abc import ABC, abstractmethod

from arachne.backend import ModelBackend
from arachne.evaluate.fitness import FitnessInputs, Outcome
from arachne.suspects import Suspects
from arachne.values import Array


class Evaluator(ABC):
    """Says what candidate patches cost. A search knows nothing else about the model.

    Args:
        backend: The model.
        fitness_inputs: The inputs that count.
        suspects: The weights candidates change.
    """

    def __init__(self, backend: ModelBackend, fitness_inputs: FitnessInputs, suspects: Suspects) -> None:
        self.backend = backend
        self.fitness_inputs = fitness_inputs
        self.suspects = suspects

    @abstractmethod
    def evaluate(self, trials: Array, limits: Array | None = None) -> Array:
        """Deficits of candidate patches, int64 `(trials, terms)`.

        Args:
            trials: New values for the suspects, `(trials, k)`, already rounded to what the model stores.
            limits: int64 `(trials,)`, or by term `(trials, terms)`, which are added up. Deficits are exact where their
                total is at most the limit; where it is above, all that holds of the returned ones is that they are
                above it too. None asks for exact deficits of all trials.
        """

    def challenge(self, trials: Array, parents: Array, limits: Array | None) -> Array:
        """As `evaluate`, for a search that lets each trial challenge its parent and keeps the winner.

        Such a search needs decisions, not sums: whether a trial's total is at most its parent's, and which member is
        the best. Both are those of the plain evaluator, and so is the lowest total. Other deficits may be estimates:
        use them for nothing but the limits of the next call.

        Args:
            trials: As in `evaluate`.
            parents: The candidates they challenge, `(trials, k)`.
            limits: The totals this method gave for the parents, int64 `(trials,)`; None for a first population, which
                challenges nobody.
        """
        return self.evaluate(trials, limits)

    @abstractmethod
    def scores(self, trial: Array) -> Array:
        """Class scores `(n, classes)` of every input that counts, under one candidate."""

    def outcome(self, trial: Array) -> Outcome:
        """How many negatives one candidate repairs, and how many positives and never-break inputs it breaks."""
        return self.fitness_inputs.outcome(self.fitness_inputs.wrong_by_term(self.scores(trial)))
