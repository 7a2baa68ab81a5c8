"""Task: reads a model's raw outputs as decisions between classes, and carries gradients of them back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from arachne.tasks import losses
from arachne.tasks.decisions import Array, Decisions, best_others, correct, decide, margins


class Task(ABC):
    """How a model's outputs are read: which decisions they hold, between which classes, and when one is right.

    A backend gives raw outputs `(n, ...)`; everything behind it works with decisions: class scores `(m, classes)`,
    labels `(m,)` and the input each belongs to. An input may have several decisions, or none.
    """

    name: ClassVar[str]

    SINGLE: ClassVar[bool] = False
    """Whether the outputs are the class scores themselves, one decision for each input: what fast kernels rely on."""

    @abstractmethod
    def read(self, outputs: Array, labels: Array) -> Decisions:
        """Read raw outputs `(n, ...)` and the labels `(n, ...)` of the same inputs as decisions, input after input.

        Called with the outputs of some inputs at a time. Which decisions an input has depends on its labels alone,
        so that a patched model is compared with the original one decision by decision.
        """

    @abstractmethod
    def pull_back(self, gradient: Array, outputs: Array, labels: Array) -> Array:
        """Carry d loss / d scores `(m, classes)` of the decisions back to d loss / d outputs `(n, ...)`."""

    @abstractmethod
    def check(self, outputs: Array, labels: Array) -> None:
        """Refuse outputs and labels that this task cannot read, in one sentence.

        Raises:
            DataError: Labels that do not fit the outputs.
            ModelError: Outputs of another shape.
        """

    @abstractmethod
    def n_classes(self, outputs: Array) -> int:
        """Return the number of classes that decisions are between.

        Raises:
            ModelError: Outputs of another shape than this task reads.
        """

    def decide(self, scores: Array) -> Array:
        """Return the class that each decision is for, `(m,)`, from class scores `(m, classes)`."""
        return decide(scores)

    def correct(self, scores: Array, labels: Array) -> Array:
        """Tell which decisions are right, bool `(m,)`; one with a NaN among its scores never is."""
        return correct(scores, labels)

    def best_others(self, scores: Array, labels: Array) -> Array:
        """Return the class with the highest score besides the true one, `(m,)`."""
        return best_others(scores, labels)

    def margins(self, scores: Array, labels: Array) -> Array:
        """Return the score of the true class minus the best other one, `(m,)`."""
        return margins(scores, labels)

    def losses(self, scores: Array, labels: Array) -> Array:
        """Return the cross-entropy of each decision, float64 `(m,)`."""
        return losses.cross_entropies(scores, labels)
